"""The axis of every kind of column: bins, bars and quantiles against counts of single rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from tests.tables.test_kinds import KINDS, column_of

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.axes import MOST_BARS, MOST_BINS, QUANTILES, Axis, axis_of
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.kinds.facts import Grid
from cubicflow.tables.kinds.gridded import Gridded
from cubicflow.tables.kinds.listed import Listed
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.laws.cells import learn_cells
from cubicflow.tables.query import all_columns
from cubicflow.tables.schema.plain_rows import plain_numbers

MODELLED = [kind for kind in KINDS if kind not in ("constant", "dropped")]


def with_missing(kind: str) -> tuple[Column, Floats]:
    """Return a column and its plain numbers, of which every seventh is missing."""
    column, values = column_of(kind)
    y = plain_numbers(column, values)
    y[::7] = np.nan
    return column, y


def counted(axis: Axis, y: Floats) -> NDArray[np.int64]:
    """Count rows one by one: by label in bars, and by value between the values of the edges."""
    found = np.zeros(axis.bins + 1, np.int64)
    edges = axis.shown(np.asarray(axis.edges))
    for number in y.tolist():
        if np.isnan(number):
            found[-1] += 1
        elif axis.is_list:
            label = str(axis.column.decode(np.array([number]))[0].as_py())
            found[axis.bars.index(label) if label in axis.bars else axis.bins - 1] += 1
        else:
            value = axis.shown(np.array([number]))[0]
            found[:-1] += (edges[:-1] <= value) & (value < edges[1:])
    return found


@pytest.mark.parametrize("kind", MODELLED)
@pytest.mark.parametrize("has_cells", [False, True])
def test_masses_are_shares_of_rows(kind: str, has_cells: bool) -> None:
    column, y = with_missing(kind)
    axis = axis_of(column, y, learn_cells(column, y, None) if has_cells else None)
    counts = counted(axis, y)
    assert axis.has_gaps
    assert counts[-1] == np.isnan(y).sum()
    assert counts.sum() >= 0.99 * len(y)
    np.testing.assert_allclose(axis.masses(y), counts / len(y), rtol=1e-12)
    weights = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    repeated = np.repeat(y, weights.astype(int))
    with np.errstate(divide="ignore"):
        weighted = all_columns.counted(axis, y, np.log(weights), exact=0.0)
    np.testing.assert_allclose(weighted.masses, axis.masses(repeated), rtol=1e-12)


@pytest.mark.parametrize("kind", MODELLED)
def test_every_number_of_a_bin_lies_in_its_set(kind: str) -> None:
    column, y = with_missing(kind)
    axis = axis_of(column, y)
    bins = axis.bin_of(y)
    inside = bins >= 0
    within = axis.sets.take(bins[inside]).contains(y[inside])
    assert within.all()


@pytest.mark.parametrize("kind", MODELLED)
def test_quantiles_are_values_of_rows(kind: str) -> None:
    column, y = with_missing(kind)
    axis = axis_of(column, y)
    found = axis.quantiles(y)
    if axis.is_list:
        assert np.isnan(found).all()
        return
    values = axis.shown(y[~np.isnan(y)])
    if column.is_circle:  # quantiles of the distances from the mean direction
        low, high = axis.shown(np.array(column.turn))
        mean = np.angle(np.exp(2j * np.pi * values / (high - low)).mean()) * (high - low) / (2 * np.pi)
        distances = np.mod(values - mean + (high - low) / 2, high - low)
        expected = [values[np.argsort(distances)[int(np.ceil(level * len(values))) - 1]] for level in QUANTILES]
    else:
        expected = np.quantile(values, QUANTILES, method="inverted_cdf")
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.isnan(axis.quantiles(np.full(3, np.nan))).all()


def test_bars_of_many_words_are_the_frequent_ones() -> None:
    rng = np.random.default_rng(0)
    words = tuple(f"w{i:02d}" for i in range(40))
    y = rng.choice(40, 3000, p=np.arange(1, 41) / 820).astype(float)
    y[::9] = np.nan
    axis = axis_of(Listed("word", "string", levels=words), y)
    often = Counter(words[int(code)] for code in y[~np.isnan(y)])
    ordered = sorted(often, key=lambda word: (-often[word], word))
    assert axis.bars == (*ordered[: MOST_BARS - 1], "17 others")
    assert axis.masses(y)[-1] == np.isnan(y).mean()
    position = axis.positions(np.array([0.0, np.nan, 39.0]))
    assert position[0] == MOST_BARS - 1  # a rare word lies at the bar of the others
    assert np.isnan(position[1])
    assert axis.bars[int(position[2])] == "w39"


def test_a_short_list_of_ordered_values_keeps_its_order() -> None:
    y = np.array([2.0, 2, 2, 1, 1, 0])
    assert axis_of(Listed("size", "double", levels=(0.5, 1.0, 7.0), kind="levels"), y).bars == ("0.5", "1.0", "7.0")
    assert axis_of(Listed("size", "string", levels=("a", "b", "c")), y).bars == ("c", "b", "a")


@pytest.mark.parametrize("count", [5, 24, 48, 97, 360])
def test_bins_of_a_circle_end_at_its_turn(count: int) -> None:
    steps = Gridded("hour", "int64", grid=Grid(0, 1, 0, count), kind="circular steps")
    axis = axis_of(steps, np.arange(0, count, 7.0))
    widths = np.diff(axis.edges)
    assert (axis.edges[0], axis.edges[-1]) == (0, count)
    assert len(set(widths[:-1])) <= 1
    assert 0 < widths[-1] <= widths[0]
    assert axis.bins <= MOST_BINS
    angles = axis_of(Real("angle", "double", ends=(-180.0, 180.0), kind="circular"), np.array([10.0, 20.0]), bins=36)
    np.testing.assert_allclose(angles.edges, np.arange(-180, 181, 10))


@pytest.mark.parametrize("span", [1, 40, 47, 48, 49, 1000])
def test_bins_of_steps_span_whole_steps(span: int) -> None:
    column, _ = column_of("integer")
    column = replace(column, grid=Grid(100, 5, 0, span))
    y = np.arange(span, dtype=float).repeat(2000 // span)
    axis = axis_of(column, y)
    widths = set(np.diff(axis.edges))
    assert len(widths) == 1
    assert widths.pop() == int(widths_of(span))
    assert axis.bins <= MOST_BINS
    assert axis.shown(np.array([0.0, 2.0])).tolist() == [100, 110]


def widths_of(span: int) -> int:
    return next(width for width in range(1, span + 1) if -(-span // width) <= MOST_BINS)


def test_dates_are_seconds() -> None:
    column, values = column_of("datetime")
    y = plain_numbers(column, values)
    expected = values.cast(pa.timestamp("s")).cast(pa.int64()).to_numpy()
    np.testing.assert_allclose(axis_of(column, y).shown(y), expected, rtol=1e-12)


def test_an_axis_without_rows_has_a_bin() -> None:
    for y in (np.empty(0), np.full(5, np.nan), np.full(5, 1e20), np.full(5, -3.0)):
        axis = axis_of(Real("x", "double"), y)
        assert (np.diff(axis.edges) > 0).all()
        assert axis.masses(y)[-1] == (np.isnan(y).mean() if len(y) else 0)


@pytest.mark.parametrize("last", [1.0, 0.9999])
def test_shares_fill_the_last_bin(last: float) -> None:
    """An axis beyond 1 would halve the density of the last bin, although the shares are uniform."""
    shares = np.linspace(0, last, 48_000)
    axis = axis_of(Real("share", "double"), shares)
    assert (axis.edges[0], axis.edges[-1]) == (0, pytest.approx(1, abs=1e-12))
    np.testing.assert_allclose(axis.masses(shares), [*[1 / 48] * 48, 0], rtol=0.01)
