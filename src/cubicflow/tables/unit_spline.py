"""The splines of cells: distribution functions on [0, 1], and on a circle of circumference 1 that is cut open at 0."""

from __future__ import annotations

import torch
from torch import Tensor

from cubicflow.splines import cubic_spline
from cubicflow.splines.bins import Bins
from cubicflow.splines.cubic import CUBIC, cubic_bins, cubic_ring
from cubicflow.splines.evaluation import evaluate_unit

LEAST_BIN = 1e-3  # smallest width and height of a bin, as in cubic_spline
MOST_FLOORED = 0.1  # largest share of the unit interval that these floors may take


def unit_spline(u: Tensor, params: Tensor, *, closed: bool, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """Return a cubic spline on [0, 1] at u, and its log slope. A ``closed`` spline has the same slope at both ends.

    Args:
        u: numbers in [0, 1].
        params: (..., 2 K + 2): K widths, K heights and two edge slopes; a closed spline ignores the last.

    >>> params = torch.randn(18, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> _, log_slope = unit_spline(torch.tensor([0.0, 1.0], dtype=torch.float64), params.expand(2, -1), closed=True)
    >>> bool((log_slope[0] - log_slope[1]).abs() < 1e-12)
    True
    """
    if not closed:
        return cubic_spline(u, params, inverse=inverse, domain="unit")
    return evaluate_unit(u, bins_of(params, closed=True), CUBIC, inverse)


def reflected(params: Tensor, *, closed: bool) -> Tensor:
    """Return the params of the spline 1 - F(1 - u). It is F seen from the upper end of [0, 1]."""
    num_bins = (params.shape[-1] - 2) // 2
    widths, heights = params[..., :num_bins], params[..., num_bins : 2 * num_bins]
    ends = params[..., -2:-1] if closed else params[..., -1:]
    return torch.cat([widths.flip(-1), heights.flip(-1), ends, params[..., -2:-1]], dim=-1)


def bins_of(params: Tensor, *, closed: bool) -> Bins:
    """Return the bins of the spline with these params."""
    num_bins = (params.shape[-1] - 2) // 2
    floor = min(LEAST_BIN, MOST_FLOORED / num_bins)
    return (cubic_ring if closed else cubic_bins)(params, num_bins, floor, floor)
