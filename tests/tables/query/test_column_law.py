"""The law of a column weighs every set as the scores of its values do, and draws inside it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import roots_laguerre
from tests.helpers.circles import Rows

from cubicflow.tables import FittedTable, TableError
from cubicflow.tables.query.condition_sets import set_of
from cubicflow.tables.query.conditions import read_conditions
from cubicflow.tables.schema.sets import Set

PI = math.pi
# intervals of plain numbers that no rounding touches
REALS = {
    "angle": [(-PI, PI), (-PI, -2.0), (0.3, 0.7), (2.9, PI), (1.0, 1.0001)],
    "zero": [(1e-6, 1.0), (0.5, 0.51), (3.0, 30.0), (20.0, 20.001), (1.0, 1.0 + 1e-6)],
}
# conditions on numbers with decimals, and the numbers that round to a value which meets the condition
ROUNDED = {
    "wind in 10.001..180": [(10.0005, 180.0005)],
    "wind<0.001": [(0.0, 0.0005), (359.9995, 360.0)],
    "wind>359.998": [(359.9985, 359.9995)],
    "wind in 350..360": [(349.9995, 360.0), (0.0, 0.0005)],
    "wind in 350..0.002": [(349.9995, 360.0), (0.0, 0.0025)],
    "bearing in 6.28..0.0001": [(6.27995, 2 * PI), (0.0, 0.00015)],
    "bearing<0.0001": [(0.0, 0.00005)],
}
CIRCLES = {
    "hour": ["hour in 3..21", "hour in 22..2"],
    "angle": ["angle in -3..3", "angle in 3..-3"],
    "wind": ["wind in 10..359.999", "wind in 0..9.999"],
    "bearing": ["bearing in 0.0001..4", "bearing in 4.0001..0"],
}


@pytest.fixture(scope="module")
def rows(of_circles: FittedTable) -> Rows:
    return Rows(of_circles)


def set_under(rows: Rows, text: str) -> Set:
    condition = read_conditions([text], rows.fitted.schema)[0]
    column = rows.fitted.schema[condition.column]
    return set_of(condition, column, gaps=rows.encoder.cells[column.name].gaps)


def log_mass(rows: Rows, name: str, within: Set) -> np.ndarray:
    law = rows.law(name)
    return law.log_mass(law.coder.of(within))


@pytest.mark.parametrize(("name", "ends"), [(name, ends) for name, found in REALS.items() for ends in found], ids=str)
def test_the_mass_of_an_interval_is_the_integral_of_the_score(rows: Rows, name: str, ends: tuple[float, float]) -> None:
    found = np.exp(log_mass(rows, name, Set.between(ends)))
    np.testing.assert_allclose(found, rows.integral(name, *ends), rtol=1e-10)


@pytest.mark.parametrize("text", ROUNDED)
def test_a_value_with_decimals_covers_what_rounds_to_it(rows: Rows, text: str) -> None:
    name = text.split("<")[0].split(">")[0].split(" ")[0]
    found = np.exp(log_mass(rows, name, set_under(rows, text)))
    np.testing.assert_allclose(found, sum(rows.integral(name, *ends) for ends in ROUNDED[text]), rtol=1e-10)


def test_steps_sum_up(rows: Rows) -> None:
    hours = np.exp(rows.log_p("hour", np.arange(24.0)))
    for first, last in ((0, 23), (22, 23), (5, 9)):
        mass = np.exp(log_mass(rows, "hour", Set.between((first, last))))
        np.testing.assert_allclose(mass, hours[:, first : last + 1].sum(1), rtol=1e-10)


@pytest.mark.parametrize("name", CIRCLES)
def test_an_arc_across_the_seam_and_the_rest_are_the_circle(rows: Rows, name: str) -> None:
    masses = [np.exp(log_mass(rows, name, set_under(rows, text))) for text in CIRCLES[name]]
    np.testing.assert_allclose(sum(masses), 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize("start", [45.0, 200.0, 1000.0])
def test_the_probability_of_a_tail_is_the_integral_of_the_score(rows: Rows, start: float) -> None:
    """Far out the density is an exponential times a spline's slope near 1, so 30 nodes integrate it exactly."""
    reach = rows.encoder.cells["zero"].scale.reach_above
    nodes, weights = roots_laguerre(30)
    log_p = rows.log_p("zero", start + reach * nodes)
    expected = log_p[:, 0] + np.log(np.exp(log_p - log_p[:, :1] + nodes) @ weights * reach)
    tail = Set.between((start, math.inf))
    np.testing.assert_allclose(log_mass(rows, "zero", tail), expected, rtol=0, atol=1e-9)
    repeated = np.zeros(2000, np.int64)
    law = rows.law("zero").take(repeated)
    drawn = law.draw(law.coder.of(tail), torch.Generator().manual_seed(0)).y
    assert (drawn >= start).all()
    assert drawn.mean() - start == pytest.approx(reach, rel=5 / math.sqrt(2000))  # the spread is the mean


def test_narrow_intervals_do_not_cancel(rows: Rows) -> None:
    for name, first, width in (("zero", 40.0, 1e-3), ("zero", 40.0, 1e-9), ("zero", 0.7, 1e-12), ("angle", 2.0, 1e-9)):
        last = first + width
        expected = rows.log_p(name, np.array([first]))[:, 0] + math.log(last - first)
        law, within = rows.law(name), Set.between((first, last))
        np.testing.assert_allclose(log_mass(rows, name, within), expected, rtol=0, atol=2e-3 if width == 1e-3 else 1e-8)
        drawn = law.draw(law.coder.of(within), torch.Generator().manual_seed(0)).y
        assert ((drawn >= first) & (drawn <= last)).all()
        assert len(set(drawn.tolist())) == len(drawn)


@pytest.mark.parametrize(
    "text",
    ["wind<0.001", "wind in 359.9..0.1", "bearing in 6.2831..0.0001", "size<0.5", "size>0.5", "angle in 3..-3",
     "hour in 22..2", "zero>300", "zero in 0.7..0.70001"],
)  # fmt: skip
def test_draws_lie_inside(rows: Rows, text: str) -> None:
    name = read_conditions([text], rows.fitted.schema)[0].column
    within, column = set_under(rows, text), rows.fitted.schema[name]
    law = rows.law(name).take(np.repeat(np.arange(2), 200))
    for knots in (None, np.linspace(0.01, 0.99, 60)):
        cells = law.coder.of(within, knots)
        drawn = law.draw(cells, torch.Generator().manual_seed(0))
        assert within.contains(drawn.y).all()
        np.testing.assert_allclose(drawn.log_weight, law.log_mass(cells), rtol=1e-9)
        np.testing.assert_allclose(drawn.log_weight[::200], log_mass(rows, name, within), rtol=1e-9)
    if column.decimals is not None:
        assert (drawn.y == column.rounded(drawn.y)).all()


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("hour<24", range(24)),
        ("hour<=24", range(24)),
        ("hour in 0..24", range(24)),
        ("hour in 1..24", range(24)),
        ("hour in -2..2", [22, 23, 0, 1, 2]),
        ("hour in 22..26", [22, 23, 0, 1, 2]),
        ("hour in 22..24", [22, 23, 0]),
        ("hour in 22.5..0.5", [23, 0]),
        ("hour in 24..2", [0, 1, 2]),
        ("hour in 5..5", [5]),
        ("hour=24", [0]),
        ("hour>=22", [22, 23]),
        ("hour<-1", None),
        ("hour>=24", None),
        ("hour in 0.2..0.8", None),
    ],
)
def test_conditions_on_hours(rows: Rows, text: str, hours: list[int] | None) -> None:
    if hours is None:
        with pytest.raises(TableError, match=r"none lies in this range|no value of the column"):
            rows.fitted.probability([text])
        return
    expected = np.exp(rows.log_p("hour", np.asarray(hours, float))).sum(1)
    np.testing.assert_allclose(np.exp(log_mass(rows, "hour", set_under(rows, text))), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "text",
    ["angle<=3.141592653589793", "angle in -3.141592653589793..3.141592653589793", "angle<4", "angle in 0..7",
     "wind<360", "wind in 0..360", "bearing<6.2832", "zero>=0"],
)  # fmt: skip
def test_a_condition_that_every_row_meets_has_probability_1(of_circles: FittedTable, text: str) -> None:
    assert float(of_circles.probability([text]).values) == pytest.approx(1, abs=1e-9)


def test_comparisons_beyond_the_turn_name_a_remedy(of_circles: FittedTable) -> None:
    with pytest.raises(TableError, match=r"'angle>=3\.2'.*from -3\.14.* to just below 3\.14.*as a range"):
        of_circles.probability(["angle>=3.2"])


def test_the_density_is_continuous_at_the_seam(of_circles: FittedTable) -> None:
    for name, (low, high) in {"angle": (-PI, PI), "wind": (0.0, 360.0)}.items():
        answer = of_circles.conditional(name, {})
        at, above, below = answer.density([low, low + 1e-12, high - 1e-12]).values
        np.testing.assert_allclose([above, below], at, rtol=1e-6)
        assert at > 0
        if name == "angle":
            question = of_circles.probability(["angle=-3.141592653589793"])
            assert float(question.values) == pytest.approx(at, rel=1e-9)
