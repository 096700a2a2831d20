"""Tables with words, steps, gaps, atoms and rules, from a file to scores and samples."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from tests.helpers.options import option_of

import cubicflow as cf
from cubicflow.flows.serialization import FlowFileError
from cubicflow.tables import FittedTable, TableError, TableOptions, fit_table, open_table
from cubicflow.tables.laws.cells import UNSEEN, NumberCells, WordCells, find_atoms, learn_cells
from cubicflow.tables.laws.coder import coder_of
from cubicflow.tables.laws.law import Law
from cubicflow.tables.model.network import ColumnsModel
from cubicflow.tables.schema.sets import Set

ROWS = 600
TRAINING = {"steps": 60, "device": "cpu", "progress": False, "validate_every": 20}
SIZES = {"hidden_features": 16, "num_bins": 8}
TINY = {"hidden_features": 4, "num_bins": 4}


def frame(rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    town = rng.integers(0, 8, rows)
    made = pd.DataFrame(
        {
            "town": [f"town {i}" for i in town],
            "county": [f"county {i // 3}" for i in town],
            "size": np.round(rng.gamma(2.0, 2.0, rows) + town, 1),
            "legs": rng.choice([0, 2, 4], rows),
            "hours": np.where(rng.random(rows) < 0.4, 0.0, rng.exponential(3.0, rows)),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, rows), "D"),
            "price": rng.choice(rng.integers(100, 100_000, 60), rows),
        }
    )
    made.loc[rng.random(rows) < 0.1 + 0.4 * (town < 4), "size"] = np.nan
    made.loc[rng.random(rows) < 0.1, "seen"] = pd.NaT
    return made


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    folder = tmp_path_factory.mktemp("columns")
    frame().to_csv(folder / "t.csv", index=False)
    fit_table(folder / "t.csv", folder / "run", settings=SIZES, **TRAINING)
    return FittedTable.load(folder / "run")


def table(made: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(made, preserve_index=False).combine_chunks()


def scored(fitted: FittedTable, column: str, values: list[object]) -> np.ndarray:
    """Return log p of one column's values given the earlier cells of the first row."""
    made = pd.concat([frame()[:1]] * len(values), ignore_index=True)
    made[column] = values
    found = fitted.model.score(fitted.encoder.read(table(made).to_batches()[0])).terms
    return found[:, fitted.model.order.index(column)]


def test_a_mixed_table_gets_a_model_of_columns(fitted: FittedTable) -> None:
    assert isinstance(fitted.flow, ColumnsModel)
    assert str(fitted.missing) == "model"
    scores = fitted.score(table(frame()))
    assert scores.shape == (ROWS,)
    assert np.isfinite(scores).all()
    numbers = fitted.encoder.read(table(frame()).to_batches()[0])
    np.testing.assert_allclose(fitted.model.score(numbers).terms.sum(axis=1), scores, rtol=1e-9)


def test_everything_a_column_can_hold_sums_to_one(fitted: FittedTable) -> None:
    """The sum is over the grid, far beyond it, the gap, the atoms, and the share for unseen values."""
    left = {name: cells.unseen for name, cells in fitted.model.cells.items()}
    sizes = np.round(np.arange(-400, 3000) / 10, 1)
    steps = scored(fitted, "size", sizes.tolist())
    gap = scored(fitted, "size", [None])
    assert abs(np.exp(steps).sum() + np.exp(gap).sum() + left["size"] - 1) < 1e-7
    unseen = ~np.isin(sizes, frame()["size"])
    assert (np.exp(steps[unseen & (sizes >= 0)]) > 0).all()  # including values that are in no row
    assert (unseen & (sizes >= 0)).sum() > 1000
    legs = scored(fitted, "legs", list(range(5)))  # values pile up at both ends, so the ends are hard limits
    assert abs(np.exp(legs).sum() + left["legs"] - 1) < 1e-7
    towns = scored(fitted, "town", [f"town {i}" for i in range(8)])
    assert abs(np.exp(towns).sum() + left["town"] - 1) < 1e-7
    days = pd.date_range("2019-01-01", "2030-01-01").tolist()
    seen = scored(fitted, "seen", [*days, pd.NaT])
    assert abs(np.exp(seen).sum() + left["seen"] - 1) < 1e-7


def test_a_density_and_its_atom_have_total_mass_one(fitted: FittedTable) -> None:
    grid = np.linspace(1e-9, 200, 8_001)
    density = np.exp(scored(fitted, "hours", grid.tolist()))
    atom = np.exp(scored(fitted, "hours", [0.0]))[0]
    assert 0.1 < atom < 0.8
    assert abs(np.trapezoid(density, grid) + atom + fitted.model.cells["hours"].unseen - 1) < 2e-3


def test_samples_agree_with_the_table(fitted: FittedTable) -> None:
    samples = fitted.sample(4000, seed=1)
    assert samples.schema.names == list(frame().columns)
    made, data = samples.to_pandas(), frame()
    pairs = set(zip(made["town"], made["county"], strict=True))
    assert pairs <= set(zip(data["town"], data["county"], strict=True))  # no sample breaks the dependency
    assert abs((made["hours"] == 0).mean() - (data["hours"] == 0).mean()) < 0.1
    assert (made["hours"] >= 0).all()
    for name in ("size", "seen"):
        assert abs(made[name].isna().mean() - data[name].isna().mean()) < 0.1
    assert made.drop(columns=["size", "seen"]).notna().all().all()
    assert samples.equals(fitted.sample(4000, seed=1))
    assert np.isfinite(fitted.score(samples)).all()
    assert fitted.sample(500, seed=1, complete=True).to_pandas().notna().all().all()
    assert fitted.sample(0).num_rows == 0
    with pytest.raises(TableError, match="no temperature"):
        fitted.sample(5, temperature=0.5)


def test_samples_keep_dependencies_on_numbers_with_unseen_neighbours(tmp_path: Path) -> None:
    """A number between or beyond the training values has no rule, so it must not be drawn for a determinant."""
    rng = np.random.default_rng(0)
    size = rng.choice(rng.integers(0, 400, 60), ROWS) + rng.geometric(0.2, ROWS)
    made = pd.DataFrame({"size": size, "copy": size, "group": [f"group {n % 7}" for n in size]})
    made.to_csv(tmp_path / "t.csv", index=False)
    fitted = fit_table(tmp_path / "t.csv", tmp_path / "run", settings=TINY, **TRAINING).fitted
    assert {rule.dependent for rule in fitted.model.laws().encoder.rules} == {"size", "group"}
    for samples in (fitted.sample(4000, seed=0), fitted.sample(1000, given=["group=group 3"], seed=0)):
        drawn = samples.to_pandas()
        assert (drawn["size"] == drawn["copy"]).all()
        assert (drawn["group"] == "group " + (drawn["size"] % 7).astype(str)).all()


def test_a_dependency_holds_beside_rows_without_the_determinant(tmp_path: Path) -> None:
    made = frame()[["town", "county", "legs"]]
    made.loc[np.random.default_rng(0).random(ROWS) < 0.1, "town"] = None
    made.to_csv(tmp_path / "t.csv", index=False)
    said: list[str] = []
    found = fit_table(tmp_path / "t.csv", tmp_path / "run", settings=TINY, say=said.append, **TRAINING)
    assert any("'town' determines 'county'" in line for line in said)
    drawn = found.fitted.sample(4000, seed=0).to_pandas()
    without, known = drawn["town"].isna(), set(zip(made["town"], made["county"], strict=True))
    assert 0.05 < without.mean() < 0.2
    assert drawn["county"][without].nunique() == 3  # a row without a town has any county
    assert set(zip(drawn["town"][~without], drawn["county"][~without], strict=True)) <= known
    assert np.isfinite(found.fitted.score(table(made))).all()


def test_samples_keep_copies_of_real_columns(tmp_path: Path) -> None:
    """Real numbers do not repeat, so no list of values can say that two columns are equal."""
    x = np.random.default_rng(0).normal(size=300)
    pd.DataFrame({"x": x, "z": -x, "same": x}).to_csv(tmp_path / "t.csv", index=False)
    said: list[str] = []
    fit_table(tmp_path / "t.csv", tmp_path / "run", settings=TINY, say=said.append, **TRAINING)
    assert "by a model of columns" in said[0]
    assert any("'same' is a copy of 'x'" in line for line in said)
    drawn = FittedTable.load(tmp_path / "run").sample(1000, seed=0).to_pandas()
    assert (drawn["same"] == drawn["x"]).all()
    assert drawn["x"].nunique() == 1000  # new numbers, not those of the table
    fit_table(tmp_path / "t.csv", tmp_path / "run", settings=TINY, resume=True, **TRAINING)


def test_a_row_that_breaks_a_dependency_has_a_finite_score(fitted: FittedTable) -> None:
    """The county is certain up to half a row. The probabilities of all counties sum to the column's total."""
    kept, broken = scored(fitted, "county", ["county 0", "county 1"]), scored(fitted, "county", ["county 2"])
    town = int(frame()["town"][0].split()[1])
    right = f"county {town // 3}"
    each = dict(zip(["county 0", "county 1", "county 2"], np.exp([*kept, *broken]).tolist(), strict=True))
    assert each[right] > 0.998
    assert 0 < min(each.values()) < 1e-3
    assert sum(each.values()) <= 1
    assert [(rule.determinant, rule.dependent) for rule in fitted.model.laws().encoder.rules] == [("town", "county")]


def test_unseen_values_have_a_probability_and_are_counted(fitted: FittedTable) -> None:
    made = frame()
    made["size"] = made["size"].astype(object)
    made.loc[0, "town"], made.loc[1, "size"], made.loc[2, "hours"], made.loc[3, "legs"] = "Atlantis", 2.345, -1.0, None
    strange = table(made.assign(size=made["size"].astype(float), extra=1))
    scores = fitted.score(strange)
    assert np.isfinite(scores).all()
    usual = fitted.score(table(frame()))
    np.testing.assert_array_equal(scores[4:], usual[4:])
    assert (scores[[0, 2, 3]] < usual[[0, 2, 3]]).all()
    found = next(iter(fitted.score_table(cf.tables.read.table.in_memory(strange))))
    assert dict(found.unseen) == {"town": 1, "size": 1, "hours": 1, "legs": 1}
    with pytest.raises(TableError, match="row 1 holds 'Atlantis' in column 'town'"):
        list(fitted.score_table(cf.tables.read.table.in_memory(strange), unseen="error"))
    with pytest.raises(TableError, match="unseen should be"):
        list(fitted.score_table(cf.tables.read.table.in_memory(strange), unseen="guess"))


def test_observed_only_scores_condition_on_the_gaps(fitted: FittedTable) -> None:
    """A complete row is scored given that all values are present. A gap scores 0."""
    whole, observed = fitted.score(table(frame())), fitted.score(table(frame()), observed_only=True)
    complete = frame()[["size", "seen"]].notna().all(axis=1).to_numpy()
    assert (observed[complete] > whole[complete]).all()
    numbers = fitted.encoder.read(table(frame()).to_batches()[0])
    each = fitted.model.score(numbers, observed_only=True).terms
    gaps = frame()["size"].isna().to_numpy()
    assert (each[gaps, fitted.model.order.index("size")] == 0).all()
    there = np.round(np.arange(-400, 3000) / 10, 1).tolist()
    total = np.exp(scored(fitted, "size", there)).sum()
    gap = np.exp(scored(fitted, "size", [None]))[0]
    one = fitted.model.order.index("size")
    made = pd.concat([frame()[:1]] * len(there), ignore_index=True).assign(size=there)
    given_there = fitted.model.score(fitted.encoder.read(table(made).to_batches()[0]), observed_only=True).terms[:, one]
    assert abs(np.exp(given_there).sum() - total / (1 - gap)) < 1e-6


def test_a_pickle_is_exact_and_damaged_configs_are_refused(fitted: FittedTable, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.score(table(frame())), fitted.score(table(frame())))
    run = Path(fitted.source).parent / "run"
    with pytest.raises(FlowFileError, match=r"FittedTable\.load"):
        cf.load(run)
    config = json.loads((run / "config.json").read_text())
    assert config["flow"]["type"] == "ColumnsModel"
    for change in (
        lambda about: about["columns"].update(order=about["columns"]["order"][::-1]),
        lambda about: about["columns"]["cells"]["town"].update(kinds=[0]),
        lambda about: about["columns"]["cells"].pop("town"),
        lambda about: about["columns"]["cells"]["size"]["scale"].update(edges=[3, 2, 1]),
        lambda about: about.pop("columns"),
    ):
        spoiled = json.loads(json.dumps(config))
        change(spoiled["table"])
        (tmp_path / "config.json").write_text(json.dumps(spoiled))
        (tmp_path / "model.safetensors").write_bytes((run / "model.safetensors").read_bytes())
        with pytest.raises(FlowFileError):
            FittedTable.load(tmp_path)


def test_a_resumed_fit_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "t.csv", index=False)
    calls = iter(range(10_000))
    from cubicflow.training import TrainingInterrupted, loop

    straight = fit_table(tmp_path / "t.csv", tmp_path / "straight", settings=SIZES, **TRAINING)
    original = loop.why_stop

    def interrupted(config, state):
        if next(calls) == 25:
            raise KeyboardInterrupt
        return original(config, state)

    how = {**TRAINING, "settings": SIZES, "checkpoint_seconds": 0.2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "why_stop", interrupted)
        with pytest.raises((KeyboardInterrupt, TrainingInterrupted)):
            fit_table(tmp_path / "t.csv", tmp_path / "resumed", **how)
    resumed = fit_table(tmp_path / "t.csv", tmp_path / "resumed", resume=True, **how)
    assert resumed.test == straight.test


def test_context_may_have_gaps_and_weights_count(tmp_path: Path) -> None:
    made = frame().assign(weight=np.linspace(0.5, 1.5, ROWS))
    made.to_csv(tmp_path / "t.csv", index=False)
    options = TableOptions(context=("size", "town"), weights="weight")
    fit_table(tmp_path / "t.csv", tmp_path / "run", options, SIZES, **{**TRAINING, "steps": 20})
    fitted = FittedTable.load(tmp_path / "run")
    assert np.isfinite(fitted.score(table(frame()))).all()
    assert fitted.sample(5, {"size": 3.1, "town": "town 1"}, seed=0)["size"].to_pylist() == [3.1] * 5
    assert fitted.sample_like(table(frame()).to_batches()[0], ROWS, seed=0).num_rows == ROWS
    made.loc[0, "weight"] = np.nan
    made.to_csv(tmp_path / "gap.csv", index=False)
    with pytest.raises(TableError, match="lacks 1 weights"):
        fit_table(tmp_path / "gap.csv", tmp_path / "other", options, **TRAINING)


def test_the_model_follows_from_the_columns_of_a_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    reals = pd.DataFrame(rng.normal(size=(100, 2)), columns=["a", "b"])
    said: list[str] = []
    for name, made, model in (
        ("reals", reals, "flow"),
        ("gap", reals.mask(np.arange(200).reshape(100, 2) == 6), "columns"),
        ("atom", reals.assign(a=np.where(rng.random(100) < 0.3, 0.0, reals["a"])), "columns"),
        ("words", reals.assign(c=rng.choice(["x", "y"], 100)), "columns"),
    ):
        made.to_csv(tmp_path / f"{name}.csv", index=False)
        found = fit_table(
            tmp_path / f"{name}.csv", tmp_path / name, settings=TINY, steps=2, device="cpu", progress=False
        )
        assert isinstance(found.fitted.flow, ColumnsModel) == (model == "columns"), name
    with pytest.raises(TableError, match="setting of a flow"):
        fit_table(tmp_path / "words.csv", tmp_path / "no", settings={"num_layers": 2}, **TRAINING)
    with pytest.raises(TableError, match="model should be"):
        fit_table(tmp_path / "words.csv", tmp_path / "no", model="tree", **TRAINING)
    with pytest.raises(TableError, match="cannot model missing values"):
        fit_table(tmp_path / "gap.csv", tmp_path / "no", TableOptions(missing="model"), model="flow", **TRAINING)
    for name, message in (("words", "column 'c' is categorical"), ("atom", "column 'a' is real, but 0 repeats in it")):
        with pytest.raises(TableError, match=message) as refused:
            fit_table(tmp_path / f"{name}.csv", tmp_path / "no", model="flow", **TRAINING)
        assert option_of(refused.value) == "--model columns"
    fit_table(tmp_path / "reals.csv", tmp_path / "flow", model="flow", say=said.append, steps=2, progress=False)
    assert "by a flow" in said[0]


def test_rare_words_share_an_outcome() -> None:
    column = cf.tables.infer(
        cf.tables.read.table.in_memory(pa.table({"w": ["a"] * 50 + ["b"] * 20 + [f"rare {i}" for i in range(30)]}))
    ).schema.model[0]
    y = column.encode(pa.array(["a"] * 50 + ["b"] * 20 + [f"rare {i}" for i in range(30)]))
    cells = learn_cells(column, y, None)
    assert isinstance(cells, WordCells)
    assert cells.outcomes == 3
    shares = [float(np.exp(cells.encode(np.array([k]))[0, 3])) for k in range(32)]
    assert abs(sum(shares) - 3 * (1 - cells.unseen)) < 1e-9  # each outcome has all its probability
    assert 0.2 < cells.unseen < 0.4  # about the share of words that occur once
    shares_of_rows = torch.tensor([[0.0, 0.0, 1.0]]).log().double().expand(3000, -1)
    law = Law(coder_of(column, cells), shares_of_rows, None)
    drawn = law.draw(law.coder.of(Set.everything(gap=False)), torch.Generator().manual_seed(0)).y
    rare = {i for i, level in enumerate(column.levels) if str(level).startswith("rare")}
    assert set(drawn.astype(int).tolist()) == rare
    assert (cells.encode(np.array([np.nan, np.inf]))[:, 0] == UNSEEN).all()


@pytest.mark.parametrize("first", [True, False])
def test_a_near_identifier_does_not_hurt_the_others(tmp_path: Path, first: bool) -> None:
    """With the default settings, samples keep the correlations of 300 rows beside 250 different names."""
    rng = np.random.default_rng(101)
    factor = np.linalg.cholesky([[1, 0.8, -0.5], [0.8, 1, -0.3], [-0.5, -0.3, 1]])
    numbers = rng.normal(size=(300, 3)) @ factor.T
    made = pd.DataFrame({"p": numbers[:, 0].round(3), "q": numbers[:, 1].round(3), "r": (10 * numbers[:, 2]).round()})
    names = np.array([f"name {i}" for i in [*range(250), *rng.integers(0, 250, 50)]])[rng.permutation(300)]
    made.insert(0 if first else 3, "name", names)
    made.to_csv(tmp_path / "t.csv", index=False)
    said: list[str] = []
    found = fit_table(tmp_path / "t.csv", tmp_path / "run", device="cpu", progress=False, say=said.append)
    assert any("of its values are distinct" in line for line in said)
    samples = found.fitted.sample(10_000, seed=0).to_pandas()
    correlations = [frame[["p", "q", "r"]].corr().to_numpy() for frame in (samples, made)]
    assert np.abs(correlations[0] - correlations[1]).max() < 0.1


def test_atoms_stand_out_from_their_neighbourhood() -> None:
    rng = np.random.default_rng(0)
    smooth = rng.normal(size=5000)
    assert len(find_atoms(smooth)) == 0
    assert len(find_atoms(np.round(smooth, 1))) == 0  # values repeat, but so do their neighbours
    assert find_atoms(np.concatenate([smooth, np.full(100, 0.2), np.full(60, -1.0)])).tolist() == [-1.0, 0.2]


def test_a_column_of_one_value_and_gaps(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"a": rng.normal(size=200), "b": np.where(rng.random(200) < 0.3, np.nan, 7.0)})
    made.to_csv(tmp_path / "t.csv", index=False)
    found = fit_table(tmp_path / "t.csv", tmp_path / "run", settings=SIZES, **TRAINING)
    samples = found.fitted.sample(500, seed=0).to_pandas()
    assert set(samples["b"].dropna()) == {7.0}
    assert 0.15 < samples["b"].isna().mean() < 0.45
    assert isinstance(found.fitted.model.cells["a"], NumberCells)
    assert open_table(tmp_path / "t.csv").names == ["a", "b"]


def test_steps_that_are_never_negative_have_0_as_a_limit() -> None:
    """0 is a limit of values near 0, even if no value is 0. It is no limit of values far from 0."""
    rng = np.random.default_rng(0)
    near, far = rng.integers(12, 5000, 600), rng.integers(1900, 2000, 600)
    found = cf.tables.infer(cf.tables.read.table.in_memory(pa.table({"near": near, "far": far}))).schema.model
    limits = []
    for column, values in zip(found, (near, far), strict=True):
        y = column.encode(pa.array(values))
        cells = learn_cells(column, y, None)
        assert isinstance(cells, NumberCells)
        code_of_0 = y.min() - values.min()
        limits.append(cells.scale.limits[0] - code_of_0)
        kinds = cells.encode(np.array([code_of_0 - 1.0, code_of_0, y.min()]))[:, 0]
        assert kinds.tolist() == ([UNSEEN, 0, 0] if column.name == "near" else [0, 0, 0])
    assert limits == [0, -np.inf]
