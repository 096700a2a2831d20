"""Sets of a column's plain numbers: closed intervals, and whether the missing value belongs to the set.

Plain numbers are the encoded values of a column: a word's code, a step's code, a real number itself, NaN for a missing
value. In names, a missing value is a ``gap``. An interval is its first and its last plain number, both inclusive. So >
and >= differ by one code, or by the next float64 of a real column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Set:
    """One set of plain numbers for all rows, or a set for each of N rows.

    Attributes:
        ends: the first and the last number of J sorted disjoint intervals, (1, J, 2) or (N, J, 2). A set with fewer
            intervals is padded with NaN.
        gap: whether each set contains the missing value, (1,) or (N,).

    >>> some = Set.between((0, 2), (4, 9), gap=True)
    >>> some.contains(np.array([1.0, 3.0, np.nan])).tolist()
    [True, False, True]
    >>> (some & Set.between((2, 5))).ends.tolist()
    [[[2.0, 2.0], [4.0, 5.0]]]
    """

    ends: Floats
    gap: Flags

    @classmethod
    def between(cls, *ends: tuple[float, float], gap: bool = False) -> Set:
        """Return one set for all rows, of the numbers in these sorted disjoint intervals."""
        return cls(np.array(ends, np.float64).reshape(1, len(ends), 2), np.array([gap]))

    @classmethod
    def everything(cls, *, gap: bool) -> Set:
        """Return the set of all numbers, with or without the missing value."""
        return cls.between((-math.inf, math.inf), gap=gap)

    @classmethod
    def points(cls, y: Sequence[float] | Floats, *, gap: bool = False) -> Set:
        """Return one set for all rows, of these numbers."""
        each = np.unique(np.asarray(y, np.float64))
        return cls(np.stack([each, each], axis=-1)[None], np.array([gap]))

    @classmethod
    def codes(cls, among: Flags, *, gap: bool = False) -> Set:
        """Return one set for all rows, of the codes 0, 1, ... at which ``among`` is true.

        >>> Set.codes(np.array([True, True, False, True])).ends.tolist()
        [[[0.0, 1.0], [3.0, 3.0]]]
        """
        changes = np.diff(among, prepend=False, append=False).nonzero()[0]
        return cls(np.stack([changes[::2], changes[1::2] - 1.0], axis=-1)[None], np.array([gap]))

    @classmethod
    def stacked(cls, sets: Sequence[Set]) -> Set:
        """Return a set for each of N rows, given N sets for all rows."""
        ends = np.full((len(sets), max(each.ends.shape[1] for each in sets), 2), np.nan)
        for row, each in zip(ends, sets, strict=True):
            row[: each.ends.shape[1]] = each.ends[0]
        return cls(ends, np.concatenate([each.gap for each in sets]))

    @classmethod
    def known(cls, y: Floats, is_known: Flags | bool = True) -> Set:
        """Return a set for each row: its number, which may be missing, where it is known, else all numbers."""
        point = is_known & ~np.isnan(y)
        ends = np.stack([np.where(point, y, -math.inf), np.where(point, y, math.inf)], axis=-1)
        ends[is_known & np.isnan(y)] = np.nan
        return cls(ends[:, None], is_known & np.isnan(y))

    def __len__(self) -> int:
        return len(self.gap)

    def __and__(self, other: Set) -> Set:
        """Return the intersection of two sets for all rows."""
        (one,), (two,) = self.ends, other.ends
        first = np.union1d(one[other._around(one[:, 0]) >= 0, 0], two[self._around(two[:, 0]) >= 0, 0])
        last = np.minimum(one[self._around(first), 1], two[other._around(first), 1])
        return Set(np.stack([first, last], axis=-1)[None], self.gap & other.gap)

    def _around(self, y: Floats) -> NDArray[np.int64]:
        """Return, for a set for all rows, the interval around each number; -1 for a number in no interval."""
        first, last = self.ends[0].T
        place = np.searchsorted(first, y, side="right") - 1  # NaN is sorted last, and is at most nothing
        return np.where((place >= 0) & (y <= np.append(last, math.nan)[place]), place, -1)

    def shifted(self, by: Floats) -> Set:
        """Return the sets of all numbers y + ``by`` with y in these sets, a set for each row. ``by`` is (N,)."""
        return Set(self.ends + by[:, None, None], np.broadcast_to(self.gap, by.shape))

    def take(self, rows: NDArray[np.int64]) -> Set:
        """Return the sets of some rows."""
        return Set(self.ends[rows], self.gap[rows])

    def contains(self, y: Floats) -> Flags:
        """Return which plain numbers (N,) lie in the set, each in the set of its row if the sets differ by row.

        No set holds an infinite number, which stands for a value that the column cannot hold.
        """
        inside: Flags
        if len(self) == 1:
            inside = self._around(y) >= 0
        else:
            inside = np.any((y[:, None] >= self.ends[..., 0]) & (y[:, None] <= self.ends[..., 1]), axis=1)
        return (inside & ~np.isinf(y)) | (np.isnan(y) & self.gap)

    def membership(self, y: Floats) -> Flags:
        """Return which numbers (N,) lie in each of V sets, (N, V)."""
        return np.stack([self.take(np.array([v])).contains(y) for v in range(len(self))], axis=1)

    @property
    def is_empty(self) -> bool:
        """Whether a set for all rows has no element."""
        return not self.ends.size and not self.gap[0]

    @property
    def only(self) -> float | None:
        """The only number of a set for all rows, NaN for a missing value; None unless there is exactly one."""
        (ends,), (gap,) = self.ends, self.gap
        if len(ends) + gap != 1 or (ends[:, 0] != ends[:, 1]).any():
            return None
        return math.nan if gap else float(ends[0, 0])
