"""Circular columns, such as angles and hours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
import torch

from cubicflow.plots.marginals import make_panel
from cubicflow.tables import FittedTable, TableError, TableOptions, fit_table, infer
from cubicflow.tables.axes import axis_of
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.laws.masses import log_mean_density, unit_spline
from cubicflow.tables.model.columns import ModelOfColumns
from cubicflow.tables.model.flow import FlowEncoder
from cubicflow.tables.model.network import ColumnsModel
from cubicflow.tables.read.table import in_memory

SMALL = {"hidden_features": 16, "num_blocks": 1, "num_bins": 8}
TURN = 2 * np.pi
KINDS = {"angle": "circular:-3.141592653589793:3.141592653589793", "hour": "circular:24"}


def rows(n: int = 400) -> pa.Table:
    """Return angles around the seam, a number that depends on them, and hours around midnight."""
    rng = np.random.default_rng(0)
    angle = rng.vonmises(3.0, 2.0, n)
    hour = np.mod(np.round(rng.normal(23, 3, n) + 2 * np.sin(angle)), 24).astype(int)
    return pa.table({"angle": angle, "size": np.cos(angle - 1) + 0.2 * rng.normal(size=n), "hour": hour})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    folder = tmp_path_factory.mktemp("circular")
    pyarrow.csv.write_csv(rows(), folder / "t.csv")
    fit_table(
        folder / "t.csv", folder / "run", TableOptions(kinds=KINDS), steps=40, seed=0, progress=False, settings=SMALL
    )
    return FittedTable.load(folder / "run")


def test_circular_columns_have_their_kinds_and_units(fitted: FittedTable) -> None:
    assert [column.kind for column in fitted.schema.columns] == ["circular", "real", "circular steps"]
    assert [column.describe() for column in fitted.schema.columns][::2] == ["density per unit", "mass per step of 1"]


def test_the_density_is_continuous_across_the_seam(fitted: FittedTable) -> None:
    """This holds for the density of the angle and for densities given the angle."""
    near = np.pi - 1e-12
    score = fitted.score(pa.table({"angle": [-near, near] * 2, "size": [-0.5, -0.5, 0.3, 0.3], "hour": [1, 1, 22, 22]}))
    assert np.exp(score[::2] - score[1::2]) == pytest.approx(1, abs=1e-5)


def test_a_whole_turn_changes_nothing(fitted: FittedTable) -> None:
    once = pa.table({"angle": [1.0, -2.0], "size": [0.1, 0.2], "hour": [1, 23]})
    more = pa.table({"angle": [1.0 + TURN, -2.0 - TURN], "size": [0.1, 0.2], "hour": [25, -1]})
    np.testing.assert_allclose(fitted.score(more), fitted.score(once), atol=1e-9)


def conditionals(fitted: FittedTable, name: str, values: np.ndarray) -> np.ndarray:
    """Return p of values of one column given the earlier columns of a row, without the share for unseen values."""
    encoder = fitted.model.laws().encoder
    assert encoder is not None
    row = {"angle": np.full(len(values), 3.0), "size": np.full(len(values), -0.4), "hour": np.full(len(values), 23)}
    batch = pa.record_batch({**row, name: values})
    found = ModelOfColumns(encoder, fitted.flow).score(encoder.read(batch)).terms[:, encoder.order.index(name)]
    return np.exp(found) / (1 - encoder.cells[name].unseen)


def test_the_hours_sum_to_1(fitted: FittedTable) -> None:
    assert conditionals(fitted, "hour", np.arange(24)).sum() == pytest.approx(1, abs=1e-9)


def test_the_angles_integrate_to_1(fitted: FittedTable) -> None:
    angles = (np.arange(20_000) + 0.5) / 20_000 * TURN - np.pi
    assert conditionals(fitted, "angle", angles).mean() * TURN == pytest.approx(1, abs=1e-3)


def test_a_range_across_midnight(fitted: FittedTable) -> None:
    """The probability of the range agrees with the sum over its hours, within the errors."""
    hours = fitted.conditional("hour", {}).masses([22, 23, 0, 1, 2])
    night = fitted.conditional("size", {"hour": (22, 2)})
    error = float(np.hypot(night.probability_error, np.linalg.norm(hours.errors)))
    assert night.probability == pytest.approx(float(hours.masses.sum()), abs=4 * error + 1e-9)
    assert set(fitted.sample(100, {"hour": (22, 2)}, seed=0)["hour"].to_pylist()) <= {22, 23, 0, 1, 2}


def test_samples_lie_on_both_sides_of_the_seam(fitted: FittedTable) -> None:
    drawn = fitted.sample(1000, seed=0)
    angle, hour = drawn["angle"].to_numpy(), drawn["hour"].to_numpy()
    assert ((angle >= -np.pi) & (angle < np.pi)).all()
    assert drawn["hour"].type == pa.int64()
    assert set(hour) <= set(range(24))
    given = rows()
    for name in ("angle", "hour"):
        turns = TURN if name == "angle" else 24
        means = [np.exp(2j * np.pi * table[name].to_numpy() / turns).mean() for table in (drawn, given)]
        assert abs(means[0] - means[1]) < 0.1


def test_the_most_likely_angle_is_near_the_mean_of_draws(fitted: FittedTable) -> None:
    """Angles lie around the seam, where a median of the numbers would be far from every one of them."""
    gaps = pa.table({"angle": pa.array([None] * 6, pa.float64()), "size": [-0.9] * 6, "hour": [23, 0, 1] * 2})
    drawn = np.stack([filled["angle"].to_numpy() for filled in fitted.impute(gaps, draws=64, seed=0)])
    mean = np.angle(np.exp(1j * drawn).mean(axis=0))
    likely = fitted.impute(gaps, most_likely=True, seed=0)[0]["angle"].to_numpy()
    assert (np.abs(np.angle(np.exp(1j * (likely - mean)))) < 0.5).all()
    hours = pa.table({"angle": [3.0, -3.0], "size": [-0.4, -0.4], "hour": pa.array([None, None], pa.int64())})
    drawn = np.stack([filled["hour"].to_numpy() for filled in fitted.impute(hours, draws=64, seed=0)]) * TURN / 24
    likely = fitted.impute(hours, most_likely=True, seed=0)[0]["hour"].to_numpy() * TURN / 24
    assert (np.abs(np.angle(np.exp(1j * (likely - np.angle(np.exp(1j * drawn).mean(axis=0)))))) < TURN / 12).all()


def test_samples_with_decimals_have_no_more_digits() -> None:
    """Wrapping a number around the circle adds rounding errors, which must not be written."""
    column = Real("angle", "double", ends=(-180.0, 180.0), decimals=1, kind="circular")
    assert column.decode(np.array([12.34, 179.96, 0.12])).to_pylist() == [12.3, -180.0, 0.1]
    radians = Real("angle", "double", ends=(-np.pi, np.pi), decimals=3, kind="circular")  # the seam is no value
    assert radians.decode(np.array([3.14159, -3.14159, 2.0])).to_pylist() == [3.141, -3.141, 2.0]


def test_the_axis_of_a_plot_is_one_turn(fitted: FittedTable) -> None:
    given = rows()
    numbers = {name: fitted.schema[name].encode(given[name].combine_chunks()) for name in ("angle", "hour")}
    panels = [make_panel(fitted.schema[name], y, y).edges for name, y in numbers.items()]
    assert (panels[0][0], panels[0][-1]) == pytest.approx((-np.pi, np.pi))
    np.testing.assert_allclose(panels[1], np.arange(25) - 0.5)


@pytest.mark.parametrize("bins", [1, 2, 8])
def test_masses_of_a_closed_spline_are_differences(bins: int) -> None:
    generator = torch.Generator().manual_seed(0)
    params = 3 * torch.randn(50, 2 * bins + 2, generator=generator, dtype=torch.float64)
    ends = torch.rand(50, 2, generator=generator, dtype=torch.float64).sort(1).values
    low, high = ends.unbind(1)
    value = [unit_spline(end, params, closed=True)[0] for end in (low, high)]
    found = log_mean_density(low, 1 - high, (high - low).log(), params, closed=True)
    torch.testing.assert_close(found.exp() * (high - low), value[1] - value[0], rtol=1e-9, atol=1e-13)
    back = unit_spline(value[0], params, closed=True, inverse=True)[0]
    torch.testing.assert_close(back, low, rtol=1e-7, atol=1e-9)


def test_training_and_scoring_use_the_same_density() -> None:
    """Training evaluates an interval at two points of a spline. A score takes the mass under the same spline."""
    torch.manual_seed(0)
    model = ColumnsModel([1, 1], [1, 2], circles=[0, 1], hidden_features=8).double()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    low, width = torch.rand(20, dtype=torch.float64) * 0.99, 1e-3
    step = torch.stack([torch.zeros(20), low, 1 - low - width, torch.full((20,), float(np.log(width)))], 1).double()
    point = torch.stack([torch.zeros(20), low, 1 - low, torch.zeros(20)], 1).double()
    cells = torch.cat([step, point], 1)
    torch.testing.assert_close(model.eval().log_prob(cells), model.train().log_prob(cells), rtol=0, atol=1e-3)


def test_a_circular_column_can_be_context() -> None:
    options = TableOptions(kinds={"angle": KINDS["angle"]}, context=("angle",), drop=("hour",))
    encoder = FlowEncoder(infer(in_memory(rows()), options).schema)
    batch = pa.RecordBatch.from_pydict({"angle": [0.0, np.pi / 2, TURN]})
    features = encoder.context_inputs(encoder.read_context(batch))
    assert features is not None
    np.testing.assert_allclose(features, [[-1, 0], [0, -1], [-1, 0]], atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": {"hour": "circular"}}, "give the length of a turn"),
        ({"kinds": {"hour": "circular:0"}}, "above 0"),
        ({"kinds": {"hour": "circular:inf"}}, "above 0"),
        ({"kinds": {"hour": "circular:day"}}, "circular:TURN or circular:LOW:HIGH"),
        ({"kinds": {"hour": "circular:1:2:3"}}, "circular:TURN or circular:LOW:HIGH"),
        ({"kinds": {"hour": "circular:24"}, "bounds": {"hour": (0, 12)}}, "leave its other bounds out"),
        ({"kinds": {"angle": "circular:6.28"}, "transforms": {"angle": "log"}}, "bounds"),
        ({"kinds": {"word": "circular:24"}}, "cannot be circular"),
    ],
)
def test_bad_options_are_refused(options: dict[str, dict[str, str]], message: str) -> None:
    table = rows().append_column("word", pa.array(["a", "b"] * 200))
    with pytest.raises(TableError, match=message):
        infer(in_memory(table), TableOptions(**options))  # type: ignore[arg-type]


def test_a_flow_refuses_a_circle(tmp_path) -> None:
    pyarrow.csv.write_csv(rows(), tmp_path / "t.csv")
    with pytest.raises(TableError, match="is circular, but a flow models numbers on a line only"):
        fit_table(tmp_path / "t.csv", tmp_path / "run", TableOptions(kinds=KINDS), model="flow", steps=1)


def test_a_flow_has_a_usual_point_of_a_circle(tmp_path: Path) -> None:
    """The page of a flow starts with a usual value for every context column, and draws an axis for it."""
    pyarrow.csv.write_csv(rows(), tmp_path / "t.csv")
    options = TableOptions(kinds=KINDS, context=("angle", "hour"))
    how: dict[str, Any] = {"steps": 5, "seed": 0, "progress": False, "settings": {"hidden_features": 16}}
    fitted = fit_table(tmp_path / "t.csv", tmp_path / "run", options, model="flow", **how).fitted
    usual = fitted.usual_context()
    assert fitted.sample(3, usual, seed=0).num_rows == 3
    for column, ends in zip(fitted.schema.context, ((-np.pi, np.pi), (0, 24)), strict=True):
        axis = axis_of(column, fitted.model.usual(column))
        assert axis.edges[0] == pytest.approx(ends[0])
        assert axis.edges[-1] == pytest.approx(ends[1])
