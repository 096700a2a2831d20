"""Solvers of ordinary differential equations: Runge-Kutta steps of fixed length, and of a length that each row
chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Field = Callable[[Tensor, Tensor], Tensor]  # times (N, 1) and states (N, K) to slopes (N, K)

FIRST_STEP = 0.1  # of the interval; the step control corrects it
SAFETY, SMALLEST_FACTOR, LARGEST_FACTOR = 0.9, 0.2, 10.0  # of its steps (Hairer, Norsett and Wanner, eq. II.4.13)


class SolverError(ArithmeticError):
    """A solver did not reach the end of its interval.

    >>> try:
    ...     find_steps(lambda t, y: 1e6 * y.sin(), torch.ones(1, 1), 0, 1, rtol=1e-5, atol=1e-5, max_steps=9)
    ... except SolverError as error:
    ...     print(str(error).partition(";")[0])
    1 of 1 rows did not reach the end in 9 steps (max_steps)
    """


class Method(NamedTuple):
    """An explicit Runge-Kutta method: stage i is evaluated at the time t + nodes[i] h, and at y plus h times the sum of
    the earlier slopes with the weights of its row."""

    nodes: Sequence[float]
    stages: Sequence[Sequence[float]]
    result: Sequence[float]  # weights of the slopes in the step


RK4 = Method((0, 1 / 2, 1 / 2, 1), ((), (1 / 2,), (0, 1 / 2), (0, 0, 1)), (1 / 6, 1 / 3, 1 / 3, 1 / 6))
DORMAND_PRINCE = Method(
    (0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1),
    (
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    ),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
# The weights of the six slopes and of the slope at the new point in the difference from the result of order 4.
DORMAND_PRINCE_ERROR = (71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def step(
    method: Method, field: Field, t: Tensor, h: Tensor, y: Tensor, first: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Return the states after a step of h, (N, 1), and the slopes of all stages, (N, K) each. ``first`` is the slope at
    (t, y), if it is known.

    >>> grow, one = lambda t, y: y, torch.ones(1, 1)
    >>> step(RK4, grow, 0 * one, one, one)[0]
    tensor([[2.7083]])
    """
    slopes: list[Tensor] = [] if first is None else [first]
    for node, weights in list(zip(method.nodes, method.stages, strict=True))[len(slopes) :]:
        slopes.append(field(t + node * h, y + h * _combined(weights, slopes) if weights else y))
    return y + h * _combined(method.result, slopes), slopes


@torch.no_grad()
def find_steps(
    field: Field, y: Tensor, start: float, end: float, *, rtol: float, atol: float, max_steps: int
) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
    """Find steps of Dormand and Prince from ``start`` to ``end`` with an error below atol + rtol |y| each.

    Every row has times and steps of its own, so its result does not depend on the other rows. A row that rejects a
    step, or is at the end, takes a step of 0.

    Returns:
        The times and lengths of the steps, (N, 1) each, and the states at the end, (N, K).

    >>> steps, y = find_steps(lambda t, y: y, torch.ones(1, 1), 0, 1, rtol=1e-6, atol=1e-6, max_steps=50)
    >>> len(steps), y
    (5, tensor([[2.7183]]))
    """
    rounding = 4 * torch.finfo(y.dtype).eps  # smaller errors cannot be seen
    t = torch.full_like(y[:, :1], start)
    h = torch.full_like(t, FIRST_STEP * (end - start))
    finite = y.isfinite().all(1, keepdim=True)  # other rows stay where they are
    slope = field(t, y)
    steps: list[tuple[Tensor, Tensor]] = []
    while bool((active := finite & (t != end)).any()):
        if len(steps) == max_steps:
            raise SolverError(
                f"{int(active.sum())} of {len(y)} rows did not reach the end in {max_steps} steps (max_steps); raise "
                "max_steps, loosen rtol and atol, or, if a training became unstable, lower its learning rate"
            )
        last = (h.abs() >= (end - t).abs()) | ~active
        h = torch.where(last, end - t, h)
        new, slopes = step(DORMAND_PRINCE, field, t, h, y, slope)
        slopes.append(field(t + h, new))
        scale = max(atol, rounding) + max(rtol, rounding) * torch.maximum(y.abs(), new.abs())
        error = (h * _combined(DORMAND_PRINCE_ERROR, slopes) / scale).square().mean(1, keepdim=True).sqrt()
        accepted = active & (error <= 1)
        steps.append((t, torch.where(accepted, h, 0)))
        t = torch.where(accepted, torch.where(last, end, t + h), t)
        y, slope = torch.where(accepted, new, y), torch.where(accepted, slopes[-1], slope)
        factor = (SAFETY * error**-0.2).nan_to_num(SMALLEST_FACTOR).clamp(SMALLEST_FACTOR, LARGEST_FACTOR)
        h = h * factor
    return steps, y


def _combined(weights: Sequence[float], slopes: Sequence[Tensor]) -> Tensor:
    total = weights[0] * slopes[0]
    for weight, slope in zip(weights[1:], slopes[1:], strict=True):
        total = total if weight == 0 else torch.add(total, slope, alpha=weight)
    return total
