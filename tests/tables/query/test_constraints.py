"""Constraints hold in every sample. They are refused if rows break them or if they contradict one another."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cubicflow.flows.serialization import FlowFileError
from cubicflow.tables import FittedTable, TableError, TableOptions, fit_table
from cubicflow.tables.query.constraints import read_constraint

KEPT = ("start <= end", "net + tax = gross", "fixed(town, shop)", "left < right", "opened <= closed")
TRAINING = {"steps": 60, "device": "cpu", "progress": False, "validate_every": 30}


def frame(rows: int = 600) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    start = rng.integers(0, 40, rows)
    net = np.round(rng.gamma(3.0, 2.0, rows), 2)
    tax = np.round(net * rng.choice([0.07, 0.19], rows), 2)
    town = rng.integers(0, 6, rows)
    left = rng.normal(size=rows)
    opened = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 50, rows), "D")
    return pd.DataFrame(
        {
            "start": start,
            "end": start + rng.poisson(4, rows),
            "net": net,
            "tax": tax,
            "gross": np.round(net + tax, 2),
            "town": np.char.add("t", town.astype(str)),
            "shop": np.char.add("s", (town * 2 + rng.integers(0, 3, rows)).astype(str)),
            "left": left,
            "right": left + rng.exponential(size=rows),
            "opened": opened,
            "closed": opened + pd.to_timedelta(rng.integers(0, 9, rows), "D"),
        }
    )


def breaks(rows: pd.DataFrame) -> int:
    """Return the number of rows that break a constraint, by an independent count."""
    known = set(zip(frame()["town"], frame()["shop"], strict=True))
    wrong = (
        (rows["start"] > rows["end"])
        | (((rows["net"] + rows["tax"]) * 100).round() != (rows["gross"] * 100).round())
        | np.array([pair not in known for pair in zip(rows["town"], rows["shop"], strict=True)])
        | (rows["left"] >= rows["right"])
        | (rows["opened"] > rows["closed"])
    )
    return int(wrong.sum())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("constraints")
    frame().to_csv(folder / "t.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def fitted(folder: Path) -> FittedTable:
    fit_table(folder / "t.csv", folder / "run", constraints=KEPT, **TRAINING)
    return FittedTable.load(folder / "run")


def test_every_sample_meets_the_constraints(fitted: FittedTable) -> None:
    said: list[str] = []
    batches = list(fitted.sample_batches(800, seed=0, say=said.append))
    rows = pd.concat([batch.to_pandas() for batch in batches])
    assert len(rows) == 800
    assert breaks(rows) == 0
    assert any("drawn again" in text for text in said)
    assert fitted.sample(50, seed=3).equals(fitted.sample(50, seed=3))
    assert fitted.sample(0).num_rows == 0
    given = fitted.sample(60, ["net>5", "town in t1,t2"], seed=0).to_pandas()
    assert breaks(given) == 0
    assert (given["net"] > 5).all()
    more = fitted.sample(100, seed=0, constraints=["end - start <= 5"]).to_pandas()
    assert breaks(more) == 0
    assert (more["end"] - more["start"] <= 5).all()


@pytest.mark.soak
def test_a_hundred_thousand_samples_meet_the_constraints(fitted: FittedTable) -> None:
    assert breaks(fitted.sample(100_000, seed=0).to_pandas()) == 0


def test_a_flow_draws_again_until_constraints_hold(folder: Path) -> None:
    how = {"model": "flow", **TRAINING, "steps": 10, "validate_every": 5}
    settings = {"num_layers": 1, "hidden_features": 8}
    options = TableOptions(drop=("town", "shop", "opened", "closed"))
    flow = fit_table(folder / "t.csv", folder / "flow", options, settings, constraints=["left < right"], **how).fitted
    rows = flow.sample(500, seed=0).to_pandas()
    assert (rows["left"] < rows["right"]).all()
    with pytest.raises(TableError, match="a flow cannot keep sums"):
        flow.sample(5, constraints=["net + tax = gross"])


BAD = {
    "start < end": r"of 600 rows break it, the first is row \d+ \(start = '?\d+'?, end = '?\d+'?\)",
    "net + tax = start": "rows break it",
    "start <= endd": "no column 'endd'; did you mean 'end'",
    "start": "the text is not a comparison",
    "start <=": "the text is not a comparison",
    "start <= end <= 5": "the text is invalid from",
    "town <= shop": "holds no numbers",
    "opened <= start": "a date can be compared with one other date only",
    "fixed(town)": "two columns or more",
    "fixed(town, shops)": "did you mean 'shop'",
    "start <= start": "no column is left",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_constraints_are_refused(folder: Path, text: str) -> None:
    with pytest.raises(TableError, match=BAD[text]) as refused:
        fit_table(folder / "t.csv", folder / "bad", constraints=[text], **TRAINING)
    assert repr(text) in str(refused.value)
    assert not (folder / "bad").exists()


def test_contradictory_constraints_are_refused(fitted: FittedTable) -> None:
    for texts in (["start > end"], ["start + 1 <= net", "net <= start"], ["net = 3", "net = 4"]):
        with pytest.raises(TableError, match="kept by only 0 of"):
            fitted.sample(5, constraints=texts)
    with pytest.raises(TableError, match="combinations are learned when the model is fitted"):
        fitted.sample(5, constraints=["fixed(town, shop)"])
    with pytest.raises(TableError, match="too few to continue"):
        fitted.sample(5, seed=0, constraints=["start >= 1000"])


def test_column_names_may_contain_operators(fitted: FittedTable) -> None:
    from cubicflow.tables.schema import Schema

    columns = fitted.schema["start"], fitted.schema["end"]
    from dataclasses import replace

    odd = Schema((replace(columns[0], name="capital-gain"), replace(columns[1], name="capital")))
    found = read_constraint("capital-gain - 2.5 <= capital", odd)
    assert (found.names, found.factors, found.bound) == (("capital-gain", "capital"), (1, -1), 2.5)


def test_a_run_saves_its_constraints_and_invalid_ones_are_refused(folder: Path, fitted: FittedTable) -> None:
    assert [each.text for each in fitted.constraints] == list(KEPT)
    path = folder / "run" / "config.json"
    text = path.read_text()
    for wrong in ([{"text": "start <= nothing"}], "start <= end", [{"text": "fixed(town, shop)", "allowed": [["t1"]]}]):
        config = json.loads(text)
        config["table"]["constraints"] = wrong
        path.write_text(json.dumps(config))
        with pytest.raises(FlowFileError):
            FittedTable.load(folder / "run")
    config = json.loads(text)
    del config["table"]["constraints"]  # as in an older run
    path.write_text(json.dumps(config))
    assert FittedTable.load(folder / "run").constraints == ()
    path.write_text(text)
