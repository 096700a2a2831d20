"""Split features into two sets, and join them again.

Each feature goes to exactly one set, so the gradient of a split is a join, and the gradient of a join is a split.
Autograd does not use this fact: its gradient of ``index_select`` adds into zeros, which takes more kernels than the
rest of a coupling layer's backward pass. The sets of the usual masks are slices. A slice needs no index tensor and is
faster on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cubicflow.nets.tracing import is_traced
from cubicflow.splines.calls import calls


class Halves(NamedTuple):
    """The features of two sets, as indices and, if possible, as slices.

    Attributes:
        first, second: the indices of each set, (n,). Every feature is in exactly one set.
        restore: the position of each feature in the concatenation of both sets, (D,).
        slices: the two sets as slices, or None.
    """

    first: Tensor
    second: Tensor
    restore: Tensor
    slices: tuple[slice, slice] | None = None


def slices_of(first: Sequence[int], second: Sequence[int]) -> tuple[slice, slice] | None:
    """Return the two sets as slices, or None if a set is empty or is not a slice.

    >>> slices_of([1, 3, 5], [0, 2, 4])
    (slice(1, 6, 2), slice(0, 5, 2))
    >>> slices_of([0, 1, 3], [2]) is None
    True
    """
    found = []
    for part in (first, second):
        if not part:
            return None
        step = part[1] - part[0] if len(part) > 1 else 1
        taken = slice(part[0], part[-1] + 1, step)
        if step < 1 or list(range(taken.start, taken.stop, step)) != list(part):
            return None
        found.append(taken)
    return found[0], found[1]


def split(x: Tensor, halves: Halves) -> tuple[Tensor, Tensor]:
    """Return x[:, first] and x[:, second].

    >>> halves = Halves(torch.tensor([1]), torch.tensor([0, 2]), torch.tensor([1, 0, 2]))
    >>> split(torch.tensor([[10.0, 20.0, 30.0]]), halves)
    (tensor([[20.]]), tensor([[10., 30.]]))
    """
    if is_traced() or calls.needs_no_grad(x):
        return _split(x, halves)
    parts: tuple[Tensor, Tensor] = _apply_split(x, *_to_arguments(halves))
    return parts


def join(first: Tensor, second: Tensor, halves: Halves) -> Tensor:
    """Return the x that :func:`split` would split into ``first`` and ``second``.

    >>> halves = Halves(torch.tensor([1]), torch.tensor([0, 2]), torch.tensor([1, 0, 2]))
    >>> join(torch.tensor([[20.0]]), torch.tensor([[10.0, 30.0]]), halves)
    tensor([[10., 20., 30.]])
    """
    if is_traced() or calls.needs_no_grad(first, second):
        return _join(first, second, halves)
    x: Tensor = _apply_join(first, second, *_to_arguments(halves))
    return x


# Compiled code uses these two functions. A compiler fuses them, and it does not support Functions with a jvp.
def _split(x: Tensor, halves: Halves) -> tuple[Tensor, Tensor]:
    if halves.slices is not None:
        # Always copy, even if a part is already contiguous, as in a single row: no output may be a view of the input.
        first, second = (x[:, part].clone(memory_format=torch.contiguous_format) for part in halves.slices)
        return first, second
    return x.index_select(1, halves.first), x.index_select(1, halves.second)


def _join(first: Tensor, second: Tensor, halves: Halves) -> Tensor:
    if halves.slices is not None:
        for low, high, (at_low, at_high) in ((first, second, halves.slices), (second, first, halves.slices[::-1])):
            if at_low.step == at_high.step == 1 and at_low.stop == at_high.start:
                return torch.cat([low, high], dim=1)
            if at_low.step == at_high.step == 2 and at_low.start == 0 and low.shape[1] == high.shape[1]:
                pairs = torch.stack([low, high], dim=2)
                return pairs.reshape(low.shape[0], 2 * low.shape[1], *low.shape[2:])
    return torch.cat([first, second], dim=1).index_select(1, halves.restore)


def _to_arguments(halves: Halves) -> tuple[Any, ...]:
    """Return the fields as flat arguments of a Function: forward mode under vmap does not support tuple arguments."""
    return halves.first, halves.second, halves.restore, *(halves.slices or (None, None))


def _from_arguments(arguments: tuple[Any, ...]) -> Halves:
    first, second, restore, *slices = arguments
    return Halves(first, second, restore, None if slices[0] is None else (slices[0], slices[1]))


class _Exchange(torch.autograd.Function):
    """A function of tensors, followed by the arguments of halves."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        ctx.halves = _from_arguments(inputs[-5:])


class _Split(_Exchange):
    @staticmethod
    def forward(x: Tensor, *halves: Any) -> tuple[Tensor, Tensor]:
        return _split(x, _from_arguments(halves))

    @staticmethod
    def backward(ctx: Any, grad_first: Tensor, grad_second: Tensor) -> tuple[Tensor | None, ...]:
        return join(grad_first, grad_second, ctx.halves), None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, Tensor]:
        return split(tangent, ctx.halves)


class _Join(_Exchange):
    @staticmethod
    def forward(first: Tensor, second: Tensor, *halves: Any) -> Tensor:
        return _join(first, second, _from_arguments(halves))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *split(grad, ctx.halves), None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent_first: Tensor, tangent_second: Tensor, *_: None) -> Tensor:
        return join(tangent_first, tangent_second, ctx.halves)


_apply_split, _apply_join = calls.fast_apply(_Split), calls.fast_apply(_Join)
