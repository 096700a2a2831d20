"""The statistics of one column's training rows, and the map that they make."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.column import GRIDDED, LEVELLED, Column
from cubicflow.tables.errors import TableError
from cubicflow.tables.grid import Grid
from cubicflow.tables.histogram import CodeCounts, histogram_of_codes, histogram_of_levels
from cubicflow.tables.maps import Scaled
from cubicflow.tables.statistics import Moments
from cubicflow.tables.values import to_numbers

PILED = 0.01  # of the rows at the outermost value, and
PILED_ROWS = 10  # so many of them, make it a hard limit: nothing was recorded beyond


class Tally:
    """Watches the training rows of a column go by; ``finish`` is the column with its map."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self._unmapped = replace(column, map=None)  # nothing is far off before mean and std are known
        self.moments = Moments()
        self.counts = CodeCounts()
        self.rows = 0
        self.weight = 0.0

    def see(self, array: pa.Array, weights: NDArray[np.float64] | None) -> None:
        if self.column.role == "constant":
            return
        y = to_numbers(self._unmapped, array)
        self.rows += len(y)
        self.weight += float(len(y) if weights is None else weights.sum())
        if isinstance(self.column.map, Scaled):
            halfway = 0.5 if self.column.counts_mass else 0.0
            shape = self.column.map
            self.moments.see(shape.shaped(shape.start + shape.unit * (y + halfway))[0], weights)
        elif self.column.counts_mass:
            self.counts.see(y.astype(np.int64), weights)

    def finish(self, bounds: tuple[float, float] | None) -> Column:
        column = self.column
        if column.role == "constant":
            return column
        if column.role == "weights":  # divided by their mean, weights neither raise nor lower the learning rate
            return replace(column, map=Scaled(std=self.weight / self.rows))
        if isinstance(column.map, Scaled):
            shape = replace(column.map, mean=self.moments.mean, std=self.moments.std or 1.0)
            return replace(column, map=shape)
        self.counts.counts *= self.rows / self.weight  # as many as there are rows, whatever the unit of the weights
        if column.kind in LEVELLED:
            if column.role == "context":
                return column  # one feature a level
            counts = np.zeros(len(column.levels))
            counts[self.counts.codes] = self.counts.counts
            return replace(column, map=histogram_of_levels(counts))
        grid = column.grid
        assert grid is not None and column.kind in GRIDDED  # noqa: PT018, S101 - the kinds that are left
        low, high = self._limits(grid) if bounds is None else _codes_of(column.name, grid, bounds)
        return replace(column, map=histogram_of_codes(self.counts, low, high))

    def _limits(self, grid: Grid) -> tuple[int | None, int | None]:
        """Codes that nothing can lie beyond: a smallest value of 0, or an end where values pile up."""
        # a value that a density is given need not be one that was seen
        if self.column.kind == "datetime" or self.column.role == "context":
            return None, None
        last = grid.count - 1
        piled = {end: self._count(end) >= max(PILED_ROWS, PILED * self.rows) for end in (0, last)}
        return 0 if grid.origin == 0 or piled[0] else None, last if piled[last] else None

    def _count(self, code: int) -> float:
        return float(self.counts.counts[self.counts.codes == code // self.counts.pooled].sum())


def _codes_of(name: str, grid: Grid, bounds: tuple[float, float]) -> tuple[int | None, int | None]:
    """The first and the last code within bounds in the data's own units."""
    start = grid.origin / 10**grid.decimals
    first = math.ceil((bounds[0] - start) / grid.width - 1e-6) if math.isfinite(bounds[0]) else None
    last = math.floor((bounds[1] - start) / grid.width + 1e-6) if math.isfinite(bounds[1]) else None
    if (first is not None and first > 0) or (last is not None and last < grid.count - 1):
        end = start + grid.width * (grid.count - 1)
        raise TableError(
            f"column {name!r} runs from {start:g} to {end:g}, beyond its bounds {bounds[0]:g}:{bounds[1]:g}"
        )
    return first, last
