"""Which shape a column of numbers is given before it is standardised."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.column import Column
from cubicflow.tables.errors import TableError
from cubicflow.tables.maps import Scaled
from cubicflow.tables.options import TableOptions

HEAVY = 1000.0  # spreads from the median; beyond, most of a standardised column would be a single point
SPIKE = 0.05  # of the rows at one value make a density that no flow can follow


def choose_shape(
    column: Column, smallest: float, largest: float, options: TableOptions, sample: NDArray[np.float64]
) -> tuple[Scaled, str | None]:
    """The shape of a real or gridded column, without its mean and std, and a remark where it was not asked for."""
    grid = (
        {}
        if column.grid is None
        else {"start": column.grid.values(np.zeros(1, np.int64)).item(), "unit": column.grid.width}
    )
    asked = options.transforms.get(column.name)
    if asked == "log":
        # a gridded zero is fine: its step lies between 0 and 1
        if smallest < 0 or (smallest == 0 and column.grid is None):
            raise TableError(
                f"column {column.name!r} holds {smallest:g}, which has no logarithm; use --transform "
                f"{column.name}=asinh, or --bounds {column.name}=LOW: with a limit below all values"
            )
        return Scaled("log", **grid), None
    if column.name in options.bounds:
        low, high = options.bounds[column.name]
        if smallest <= low or largest >= high:
            raise TableError(
                f"column {column.name!r} runs from {smallest:.9g} to {largest:.9g}, on or beyond the bounds {low:g}:"
                f"{high:g}; give bounds that lie outside of all values"
            )
        return Scaled(
            "bounded", low=low if math.isfinite(low) else None, high=high if math.isfinite(high) else None
        ), None
    centre, spread = middle(sample)
    if asked == "asinh":
        return Scaled("asinh", centre=centre, scale=spread, **grid), None
    if max(largest - centre, centre - smallest) > HEAVY * spread:
        remark = (
            f"{column.name!r} has very long tails ({smallest:.3g} to {largest:.3g}, half of it within {spread:.3g} of "
            f"{centre:.3g}), so it is shaped by asinh"
        )
        return Scaled("asinh", centre=centre, scale=spread), remark
    return Scaled(), None


def middle(values: NDArray[np.float64]) -> tuple[float, float]:
    """Median, and the half-width around it that holds half of the values; the standard deviation where that is 0."""
    centre = float(np.median(values))
    spread = float(np.median(np.abs(values - centre))) or float(values.std()) or 1.0
    return centre, spread


def spikes(column: Column, values: NDArray[np.float64]) -> str | None:
    """A warning if many rows share one value of a column that is taken as continuous."""
    distinct, counts = np.unique(values, return_counts=True)
    share = counts.max() / len(values)
    if share < SPIKE:
        return None
    return (
        f"{share:.0%} of {column.name!r} is exactly {distinct[counts.argmax()]:g}: a density is infinite there, so its "
        "likelihood means little; consider modelling those rows apart"
    )
