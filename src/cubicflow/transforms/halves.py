"""Split features into two sets, and join them again. The sets of the usual masks are slices. A slice needs no index
tensor and is faster on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


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
    """Return x[:, first] and x[:, second], each in memory of its own.

    >>> halves = Halves(torch.tensor([1]), torch.tensor([0, 2]), torch.tensor([1, 0, 2]))
    >>> split(torch.tensor([[10.0, 20.0, 30.0]]), halves)
    (tensor([[20.]]), tensor([[10., 30.]]))
    """
    if halves.slices is not None:
        first, second = (x[:, part].clone(memory_format=torch.contiguous_format) for part in halves.slices)
        return first, second
    return x.index_select(1, halves.first), x.index_select(1, halves.second)


def join(first: Tensor, second: Tensor, halves: Halves) -> Tensor:
    """Return the x that :func:`split` would split into ``first`` and ``second``.

    >>> halves = Halves(torch.tensor([1]), torch.tensor([0, 2]), torch.tensor([1, 0, 2]))
    >>> join(torch.tensor([[20.0]]), torch.tensor([[10.0, 30.0]]), halves)
    tensor([[10., 20., 30.]])
    """
    if halves.slices is not None:
        for low, high, (at_low, at_high) in ((first, second, halves.slices), (second, first, halves.slices[::-1])):
            if at_low.step == at_high.step == 1 and at_low.stop == at_high.start:
                return torch.cat([low, high], dim=1)
            if at_low.step == at_high.step == 2 and at_low.start == 0 and low.shape[1] == high.shape[1]:
                pairs = torch.stack([low, high], dim=2)
                return pairs.reshape(low.shape[0], 2 * low.shape[1], *low.shape[2:])
    return torch.cat([first, second], dim=1).index_select(1, halves.restore)
