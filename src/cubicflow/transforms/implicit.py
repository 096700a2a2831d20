"""The inverse of an increasing map, or of a triangular one, that has no closed inverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Integers of the same width as a float.
ORDERED = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
NEWTON_STEPS = 2  # each doubles the number of right derivatives: one is right after the first step, three after two


def implicit_inverse(function: Callable[[Tensor], tuple[Tensor, Tensor]], y: Tensor) -> tuple[Tensor, Tensor]:
    """Solve function(x) = y element by element. Return x, and the log-slope of the inverse at y.

    The search halves the floating-point numbers until two neighbours remain, so it ends at rounding for every
    increasing function, whatever its scale: after 32 evaluations in float32, 64 in float64, and 16 in half precision.
    No branch depends on values. Derivatives do not pass through the search. They are those of Newton's steps from the
    solution, which are those of the implicit function theorem.

    Args:
        function: an increasing function of tensors of y's shape. Returns its values and its log-slopes.
        y: floating-point values. Where no x maps to y, x is the largest or the smallest number.

    >>> def cube(x):
    ...     return x**3, (3 * x**2).log()
    >>> x, log_slope = implicit_inverse(cube, torch.tensor([8.0, -1e-30]))
    >>> x, log_slope.exp()
    (tensor([ 2.0000e+00, -1.0000e-10]), tensor([8.3333e-02, 3.3333e+19]))
    """
    x = _searched(function, y)
    for _ in range(NEWTON_STEPS):
        value, log_slope = function(x)
        step = (y - value) * torch.exp(-log_slope)
        # The search is more accurate than the step, so only the step's derivatives count.
        x = x + torch.where(step.isfinite(), step - step.detach(), 0)
    return x, -function(x)[1]


def triangular_inverse(function: Callable[[Tensor], tuple[Tensor, Tensor]], z: Tensor) -> tuple[Tensor, Tensor]:
    """Solve function(x) = z for a map whose output i is an increasing function of x_i, given x_0 .. x_{i-1}, and does
    not depend on later features. Return x and the log-slopes of the inverse, both (N, D).

    The features are searched one after the other by :func:`implicit_inverse`: the function is evaluated 35 D times in
    float32 and 67 D times in float64.

    Args:
        function: maps (N, D) to (N, D). Also returns the log-slopes of output i as a function of x_i, (N, D).
        z: (N, D).

    >>> def shear(x):
    ...     return torch.stack([x[:, 0] * 2, x[:, 1] + x[:, 0]], 1), torch.tensor([[2.0, 1.0]]).log().expand_as(x)
    >>> triangular_inverse(shear, torch.tensor([[2.0, 5.0]]))[0]
    tensor([[1., 4.]])
    """
    columns: list[Tensor] = []
    log_slopes: list[Tensor] = []
    for i in range(z.shape[1]):

        def one_feature(value: Tensor, i: int = i) -> tuple[Tensor, Tensor]:
            later = torch.zeros_like(z[:, i + 1 :])
            y, log_slope = function(torch.cat([*(column[:, None] for column in (*columns, value)), later], dim=1))
            return y[:, i], log_slope[:, i]

        x, log_slope = implicit_inverse(one_feature, z[:, i])
        columns.append(x)
        log_slopes.append(log_slope)
    return torch.stack(columns, dim=1), torch.stack(log_slopes, dim=1)


@torch.no_grad()
def _searched(function: Callable[[Tensor], tuple[Tensor, Tensor]], y: Tensor) -> Tensor:
    """Return the largest x whose value is at most y."""
    if y.dtype not in ORDERED:
        raise TypeError(
            f"an implicit inverse needs floating-point values of 16, 32 or 64 bits, got {y.dtype}; convert them"
        )
    limits = torch.finfo(y.dtype)
    y = y.detach()
    below, above = (_key(torch.full_like(y, end)) for end in (limits.min, limits.max))
    for _ in range(limits.bits):
        middle = (below >> 1) + (above >> 1) + (below & above & 1)  # rounded down, without overflow
        x = _number(middle, y.dtype)
        value = function(x)[0]
        # A function that overflows to NaN far out is taken to have passed y.
        beyond = torch.where(value.isnan(), x > 0, value > y)
        below, above = torch.where(beyond, below, middle), torch.where(beyond, middle, above)
    return torch.where(y.isnan(), y, _number(below, y.dtype))


def _key(x: Tensor) -> Tensor:
    """Return integers in the order of floating-point numbers: neighbours differ by 1."""
    bits: Tensor = _SameBits.apply(x, ORDERED[x.dtype])
    return bits ^ ((bits >> (torch.iinfo(bits.dtype).bits - 1)) & torch.iinfo(bits.dtype).max)


def _number(key: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the numbers of :func:`_key`."""
    bits = key ^ ((key >> (torch.iinfo(key.dtype).bits - 1)) & torch.iinfo(key.dtype).max)
    found: Tensor = _SameBits.apply(bits, dtype)
    return found


class _SameBits(torch.autograd.Function):
    """The same bits as numbers of another type, without derivatives. The view of torch 2.8 has no rule for vmap."""

    @staticmethod
    def forward(x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.view(dtype)

    @staticmethod
    def setup_context(ctx: Any, _inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[int | None, ...], x: Tensor, dtype: torch.dtype) -> tuple[Tensor, int | None]:
        return x.view(dtype), in_dims[0]
