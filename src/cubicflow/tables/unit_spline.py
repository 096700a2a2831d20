"""The splines of cells: distribution functions on [0, 1], and on a circle of circumference 1 that is cut open at 0."""

from __future__ import annotations

from torch import Tensor

from cubicflow.splines import cubic_spline
from cubicflow.splines.bins import Bins
from cubicflow.splines.cubic import CUBIC, cubic_bins, cubic_ring
from cubicflow.splines.evaluation import evaluate_unit

LEAST_BIN = 1e-3  # the floors of widths and heights that cubic_spline has
MOST_FLOORED = 0.1  # of the unit interval


def unit_spline(u: Tensor, params: Tensor, *, closed: bool, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """A cubic spline of [0, 1] and the log of its slope. The slope of a ``closed`` one is the same at both ends.

    Args:
        u: in [0, 1].
        params: (..., 2 K + 2): K widths, K heights and two edge slopes; the last has no part in a closed spline.

    >>> import torch
    >>> params = torch.randn(18, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> _, log_slope = unit_spline(torch.tensor([0.0, 1.0], dtype=torch.float64), params.expand(2, -1), closed=True)
    >>> bool((log_slope[0] - log_slope[1]).abs() < 1e-12)
    True
    """
    if not closed:
        return cubic_spline(u, params, inverse=inverse, domain="unit")
    return evaluate_unit(u, bins_of(params, closed=True), CUBIC, inverse)


def bins_of(params: Tensor, *, closed: bool) -> Bins:
    """The bins of such a spline."""
    num_bins = (params.shape[-1] - 2) // 2
    floor = min(LEAST_BIN, MOST_FLOORED / num_bins)
    return (cubic_ring if closed else cubic_bins)(params, num_bins, floor, floor)
