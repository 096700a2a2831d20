"""Sums of real numbers: samples, answers and the page agree, also with context columns and for copies."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cubicflow.explore.subject import FIRST_ROWS, Subject
from cubicflow.tables import FittedTable, TableError, TableOptions, fit_table

TRAINING = {"steps": 30, "device": "cpu", "progress": False, "validate_every": 15, "seed": 0}
SMALL = {"hidden_features": 16, "num_blocks": 1}


def frame(rows: int = 800) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    group = rng.choice(["u", "v"], rows)
    x, y = rng.normal(size=rows), rng.normal(size=rows) + 2 * (group == "v")
    return pd.DataFrame({"x": x, "y": y, "z": x + y, "copy": x, "k": rng.poisson(3 + (x > 0)), "group": group})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    folder = tmp_path_factory.mktemp("reals")
    frame().to_csv(folder / "t.csv", index=False)
    options = TableOptions(drop=("group",))
    return fit_table(folder / "t.csv", folder / "run", options, SMALL, constraints=["x + y = z"], **TRAINING).fitted


@pytest.mark.parametrize("given", [["z>1"], ["k>=5", "z in -1..2"], ["y<0", "copy>0"]], ids=str)
def test_answers_samples_and_the_page_agree(fitted: FittedTable, given: list[str]) -> None:
    rows = fitted.sample(4000, given, seed=0).to_pandas()
    assert np.abs(rows["x"] + rows["y"] - rows["z"]).max() < 1e-8
    assert (rows["copy"] == rows["x"]).all()
    subject = Subject(fitted)
    subject.drawn().grow_to(1 << 13)
    page = subject.answer({"z": ("1", None)}) if given == ["z>1"] else None
    for place, name in enumerate(("x", "y", "z", "copy")):
        points = np.quantile(rows[name], [0.2, 0.5, 0.8])
        found = fitted.conditional(name, given).cdf(points.tolist())
        error = np.hypot(found.errors, np.sqrt(0.25 / len(rows)))
        assert (np.abs(found.values - [0.2, 0.5, 0.8]) <= 4 * error).all()
        if page is not None:
            column, answer = subject.axes[place], page.columns[place]
            assert column.name == name
            place = column.bin_of(rows[name].to_numpy())
            shares = np.bincount(place[place >= 0], minlength=column.bins + 1) / len(rows)
            error = np.sqrt(0.25 / answer.effective_size + 0.25 / len(rows))
            assert np.abs(np.cumsum(answer.masses) - np.cumsum(shares)).max() <= 4 * error


@pytest.mark.parametrize(
    "given", [["x<0", "y<0", "z>1e-6"], ["x in 1..2", "y in 1..2", "z in 4.5..6"], ["x>2", "y>2", "z<3.9"]], ids=str
)
def test_what_a_sum_makes_impossible_is_told_from_what_is_rare(fitted: FittedTable, given: list[str]) -> None:
    found = fitted.probability(given)
    assert (float(found.values), float(found.errors)) == (0.0, 0.0)
    with pytest.raises(TableError, match=r"no row meets all of them; their probability is 0"):
        fitted.sample(5, given)
    with pytest.raises(TableError, match="too rare to answer"):
        fitted.conditional("k", ["x>0", "z>60"])


def test_the_density_of_a_sum_is_refused(fitted: FittedTable) -> None:
    with pytest.raises(TableError, match=r"column 'z' is computed from other columns.*use cdf\(\)"):
        fitted.conditional("z").density([0.0])
    answer = fitted.conditional("x", ["z>1"])
    ends = [-0.25, 0.25]
    middle = answer.density([0.0])
    assert abs(middle.values[0] - np.diff(answer.cdf(ends).values)[0] / 0.5) <= 0.02 + 4 * middle.errors[0]


def test_a_copy_leaves_answers_exact(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("copy")
    frame()[["x", "y", "copy"]].to_csv(folder / "t.csv", index=False)
    fitted = fit_table(folder / "t.csv", folder / "run", settings=SMALL, **TRAINING).fitted
    assert [each.text for each in fitted.constraints] == ["x = copy"]
    assert fitted.conditional("x").is_exact
    below = fitted.conditional("copy", ["x<0"]).cdf([0.0])
    assert below.values[0] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("model", ["columns", "flow"])
def test_the_page_keeps_constraints_with_context(tmp_path_factory: pytest.TempPathFactory, model: str) -> None:
    folder = tmp_path_factory.mktemp("context")
    rows = frame()[["x", "y", "z", "group"]]
    text, settings = ("x + y = z", SMALL) if model == "columns" else ("x <= z", {"num_layers": 1, "hidden_features": 8})
    rows = rows if model == "columns" else rows[rows["x"] <= rows["z"]]
    rows.to_csv(folder / "t.csv", index=False)
    how = {**TRAINING, "steps": 6, "validate_every": 3, "model": model}
    options = TableOptions(context=("group",))
    fitted = fit_table(folder / "t.csv", folder / "run", options, settings, constraints=[text], **how).fitted
    like = pa.Table.from_pandas(rows, preserve_index=False).combine_chunks().to_batches()[0]
    drawn = Subject(fitted, like).rows(FIRST_ROWS)
    x, y, z = drawn.T
    if model == "columns":
        assert len(drawn) == FIRST_ROWS
        assert np.abs(x + y - z).max() < 1e-8
    else:
        assert 0 < len(drawn) < FIRST_ROWS
        assert (x <= z).all()


def test_a_sum_that_its_last_column_cannot_hold_is_impossible(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Some combinations of a and b give c below its bound. They do not make an impossible range of c merely rare."""
    folder = tmp_path_factory.mktemp("bounded")
    rng = np.random.default_rng(0)
    b, more = rng.integers(0, 5, 1000), rng.integers(1, 4, 1000)
    pd.DataFrame({"a": b + more, "b": b, "c": more * 1.0}).to_csv(folder / "t.csv", index=False)
    options = TableOptions(kinds={"c": "real"}, bounds={"c": (0, 6)})
    fitted = fit_table(folder / "t.csv", folder / "run", options, SMALL, constraints=["a - b = c"], **TRAINING).fitted
    possible, impossible = (fitted.probability([f"c in {ends}"]) for ends in ("0.9..1.1", "1.2..1.8"))
    assert (float(impossible.values), float(impossible.errors)) == (0.0, 0.0)
    assert 0.2 < float(possible.values) < 0.5
    assert float(possible.errors) < 0.01
    rows = fitted.sample(2000, ["c in 0.9..1.1"], seed=0).to_pandas()
    assert (rows["a"] - rows["b"] == rows["c"]).all()
    with pytest.raises(TableError, match=r"no row meets all of them; their probability is 0"):
        fitted.sample(5, ["c in 1.2..1.8"])
