"""The probability of an interval under a spline, compared with exact rational arithmetic and with differences."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from cubicflow.splines import cubic_spline
from cubicflow.splines.cubic import cubic_bins
from cubicflow.tables.laws.masses import NARROW, NARROW_IF_ROUNDED, log_mean_density, masses_of

BINS = 8
FLOOR = 1e-3


def exact_mass(low: float, width: float, params: Tensor) -> Fraction:
    """Return F(b) - F(a) of the spline with these float64 bins, in exact rational arithmetic."""
    bins = cubic_bins(params, BINS, FLOOR, FLOOR)
    sizes, rises, starts, ends = ([Fraction(v) for v in part.tolist()] for part in bins[:4])
    total = sum(rises)

    def value(place: Fraction) -> Fraction:
        before = sum_before = Fraction(0)
        for size, rise, start, end in zip(sizes, rises, starts, ends, strict=True):
            if place <= before + size or size is sizes[-1]:
                t = min(max((place - before) / size, Fraction(0)), Fraction(1))
                f = start * t + (3 - 2 * start - end) * t**2 + (start + end - 2) * t**3
                return (sum_before + rise * f) / total
            before, sum_before = before + size, sum_before + rise
        raise AssertionError

    return value(Fraction(low) + Fraction(width)) - value(Fraction(low))


@pytest.mark.parametrize("size", [1e-1, 1e-3, 1e-6, 1e-9, 1e-12, 1e-15])
def test_masses_of_any_size_are_correct_to_nine_digits(size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    n = 60
    params = 2 * torch.randn(n, 2 * BINS + 2, generator=generator, dtype=torch.float64)
    low = torch.rand(n, generator=generator, dtype=torch.float64) * (1 - size)
    knots = cubic_bins(params, BINS, FLOOR, FLOOR).widths.cumsum(-1)
    # Half of the intervals contain a knot.
    crossing = torch.arange(n) % 2 == 0
    low = torch.where(crossing, knots[torch.arange(n), torch.arange(n) % (BINS - 1)] - size / 3, low).clamp(0, 1 - size)
    width = torch.full_like(low, size)
    found = (log_mean_density(low, 1 - low - width, width.log(), params) + width.log()).exp()
    expected = [float(exact_mass(a, size, p)) for a, p in zip(low.tolist(), params, strict=True)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=0)


def test_an_interval_at_either_end_keeps_its_precision() -> None:
    """A float64 near 1 cannot represent 1 - 1e-30. The distance from the upper end can be 1e-30."""
    params = torch.randn(2 * BINS + 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    tiny = torch.tensor(1e-30, dtype=torch.float64)
    for low, high, place in ((0 * tiny, 1 - tiny, 0.0), (1 - tiny, 0 * tiny, 1.0)):
        slope = cubic_spline(torch.tensor(place, dtype=torch.float64), params, domain="unit")[1]
        torch.testing.assert_close(log_mean_density(low, high, tiny.log(), params), slope)


def test_masses_of_a_partition_sum_to_one() -> None:
    generator = torch.Generator().manual_seed(2)
    params = 3 * torch.randn(5, 1, 2 * BINS + 2, generator=generator, dtype=torch.float64)
    edges = torch.cat([torch.zeros(1), torch.rand(200, generator=generator).sort().values, torch.ones(1)]).double()
    low, width = edges[:-1], edges.diff()
    log_masses = log_mean_density(low.expand(5, -1), (1 - edges[1:]).expand(5, -1), width.log().expand(5, -1), params)
    torch.testing.assert_close((log_masses.exp() * width).sum(1), torch.ones(5, dtype=torch.float64))


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(("narrow", "digits"), [(NARROW, 1e-11), (NARROW_IF_ROUNDED, 1e-7)])
def test_masses_of_shared_intervals_equal_those_of_single_ones(closed: bool, narrow: float, digits: float) -> None:
    """Many intervals at once take differences of values. Each mass keeps its digits, also far in the upper tail."""
    generator = np.random.default_rng(4)
    params = torch.from_numpy(generator.normal(size=(20, 2 * BINS + 2)))
    edges = np.sort(generator.random(40))
    low, width = np.concatenate([[edges[:-1], np.diff(edges)], [np.repeat(edges, 4), 10.0 ** -np.arange(1, 161)]], 1)
    low, width = low[low + width < 1], width[low + width < 1]
    high = 1 - low - width
    tail = 10.0 ** -np.arange(1, 120.0, 7)  # distances from 1
    low, high = np.concatenate([low, 1 - tail, 1 - 3 * tail]), np.concatenate([high, 0 * tail, 2 * tail])
    log_width = np.log(np.concatenate([width, tail, tail]))
    found = masses_of(low, high, log_width, params, closed=closed, narrow=narrow)
    each = (torch.from_numpy(part)[:, None].expand(-1, 20) for part in (low, high, log_width))
    one = log_mean_density(*each, params.expand(len(low), -1, -1), closed=closed) + torch.from_numpy(log_width)[:, None]
    torch.testing.assert_close(found, one.exp(), rtol=digits, atol=0)


def test_gradients_equal_those_of_the_difference() -> None:
    generator = torch.Generator().manual_seed(3)
    params = torch.randn(40, 2 * BINS + 2, generator=generator, dtype=torch.float64, requires_grad=True)
    low = torch.rand(40, generator=generator, dtype=torch.float64) * 0.8
    width = torch.rand(40, generator=generator, dtype=torch.float64) * 0.2
    (ours,) = torch.autograd.grad(log_mean_density(low, 1 - low - width, width.log(), params).sum(), params)
    ends = [cubic_spline(place, params, domain="unit")[0] for place in (low, low + width)]
    (theirs,) = torch.autograd.grad(((ends[1] - ends[0]) / width).log().sum(), params)
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)
