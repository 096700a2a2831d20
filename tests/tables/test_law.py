"""The law of a column equals brute force over the scores, for sets that differ by row, shifted sets and arcs."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.circles import Rows

import cubicflow
from cubicflow.tables import FittedTable
from cubicflow.tables.schema.sets import Set

SOURCE = Path(cubicflow.__file__).parent
SPLINES = {"cubic_spline", "unit_spline", "evaluate_in_bins", "evaluate_unit", "cubic_bins", "cubic_circle", "bins_of"}
PI = math.pi
# For every column of numbers, numbers that a set may end at. No rounding touches them.
ENDS = {"angle": (-PI, -2.5, -1.0, 0.25, 1.5, 2.9, PI), "zero": (1e-3, 0.2, 0.7, 3.0, 9.0, 30.0, 60.0)}
CODES = {"hour": 24, "word": 3}


@pytest.fixture(scope="module")
def rows(of_circles: FittedTable) -> Rows:
    return Rows(of_circles, rows=4)


def test_one_file_evaluates_the_splines_of_columns() -> None:
    """Other files of tables, of the page and of export take densities, masses and places from it, or ask a law."""
    found = set()
    for path in [p for room in ("tables", "explore", "export") for p in (SOURCE / room).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.ImportFrom) else []
            if SPLINES & set(names):
                found.add(path.relative_to(SOURCE).as_posix())
    assert found == {"tables/laws/masses.py", "tables/laws/law.py"}


def pieces_of(name: str, rng: np.random.Generator) -> list[tuple[float, float]]:
    """Return one or two disjoint intervals with random ends."""
    if name in CODES:
        first, last = np.sort(rng.choice(CODES[name] + 1, 2, replace=False)).tolist()
        return [(float(first), float(last - 1))]
    ends = np.sort(rng.choice(ENDS[name], 4, replace=False)).tolist()
    return [(ends[0], ends[1]), (ends[2], ends[3])]


def brute_force(rows: Rows, name: str, row: int, intervals: list[tuple[float, float]]) -> float:
    """Return the sum of the scores of codes, or the integral of the score, under the law of one row."""
    if name in CODES:
        codes = np.concatenate([np.arange(first, last + 1) for first, last in intervals])
        return float(np.exp(rows.log_p(name, codes))[row].sum())
    return float(sum(rows.integral(name, *ends)[row] for ends in intervals))


@pytest.mark.parametrize("name", ["word", "hour", "angle", "zero"])
def test_sets_that_differ_by_row(rows: Rows, name: str) -> None:
    rng = np.random.default_rng(0)
    law = rows.law(name)
    for _ in range(3):
        sets = [pieces_of(name, rng) for _ in range(len(law))]
        expected = [brute_force(rows, name, row, intervals) for row, intervals in enumerate(sets)]
        within = law.coder.of(Set.stacked([Set.between(*each) for each in sets]))
        np.testing.assert_allclose(np.exp(law.log_mass(within)), expected, rtol=1e-10)
        np.testing.assert_allclose(law.masses(within).diagonal(), expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["hour", "zero"])
def test_shifted_sets(rows: Rows, name: str) -> None:
    """A number plus ``by`` lies in the shifted set of its row if the number lies in the set."""
    by = np.array([2.0, 5.0, 1.0, 3.0]) if name == "hour" else np.array([0.5, 2.25, 0.125, 7.0])
    law, within = rows.law(name), Set.between((6.0, 9.0))
    expected = [brute_force(rows, name, row, [(6 + shift, 9 + shift)]) for row, shift in enumerate(by)]
    shifted = law.coder.of(within.shifted(by))
    np.testing.assert_allclose(np.exp(law.log_mass(shifted)), expected, rtol=1e-10)
    np.testing.assert_array_equal(within.shifted(by).contains(np.full(4, 10.5)), (10.5 - by >= 6) & (10.5 - by <= 9))


@pytest.mark.parametrize("name", ["hour", "angle"])
def test_an_arc_over_the_seam(rows: Rows, name: str) -> None:
    arcs = {"hour": [(-math.inf, 2.0), (22.0, math.inf)], "angle": [(-math.inf, -2.5), (2.9, math.inf)]}[name]
    inside = {"hour": [(0.0, 2.0), (22.0, 23.0)], "angle": [(-PI, -2.5), (2.9, PI)]}[name]
    law = rows.law(name)
    found = np.exp(law.log_mass(law.coder.of(Set.between(*arcs))))
    expected = [brute_force(rows, name, row, inside) for row in range(len(law))]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["word", "hour", "angle", "zero", "size"])
def test_a_single_value_has_its_score(rows: Rows, name: str) -> None:
    """A set of one number for each row: the known values of imputation."""
    law = rows.law(name)
    values = np.array([1.0, 0.0, 2.0, 1.0])
    expected = rows.log_p(name, values).diagonal()
    within = law.coder.of(Set.known(values, np.ones(4, np.bool_)))
    np.testing.assert_allclose(law.log_mass(within), expected, rtol=1e-12, atol=1e-12)


def test_fixed_numbers(rows: Rows) -> None:
    """A fixed number has probability 1, or 1 - slack besides the slack's share of the law."""
    law = rows.law("hour")
    fixed = np.array([5.0, 7.0, np.inf, 5.0])
    within = law.coder.of(Set.between((4, 6)))
    free = law.log_mass(within)
    ruled, loose = replace(law, fixed=fixed), replace(law, fixed=fixed, slack=0.1)
    np.testing.assert_allclose(np.exp(ruled.log_mass(within)), [1, 0, math.exp(free[2]), 1])
    np.testing.assert_allclose(
        np.exp(loose.log_mass(within)), np.where(fixed < np.inf, 0.9 * (fixed == 5) + 0.1 * np.exp(free), np.exp(free))
    )
    np.testing.assert_allclose(loose.masses(within)[:, 0], np.exp(loose.log_mass(within)))


def test_intersections_and_elements() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(-2, 14.0, 0.5)
    for _ in range(100):
        sets = [Set.codes(rng.random(12) < 0.5, gap=bool(rng.random() < 0.5)) for _ in range(2)]
        both = sets[0] & sets[1]
        for value in (y, np.array([np.nan])):
            np.testing.assert_array_equal(both.contains(value), sets[0].contains(value) & sets[1].contains(value))
        stacked = Set.stacked([*sets, both])
        for row, each in enumerate((*sets, both)):
            np.testing.assert_array_equal(stacked.take(np.array([row] * len(y))).contains(y), each.contains(y))
        assert both.is_empty == (not both.contains(np.append(np.arange(12.0), np.nan)).any())
    assert Set.points([3.0]).only == 3.0
    assert math.isnan(Set.between(gap=True).only)
    assert Set.points([3.0], gap=True).only is None
