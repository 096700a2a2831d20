"""Conditions, imputation and constraints on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.helpers.command_line import Command

from cubicflow.tables import TableError
from cubicflow.tables.query.filled_table import FilledTable

ROWS = 300


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    start = rng.integers(0, 50, ROWS)
    made = pd.DataFrame(
        {
            "kind": rng.choice(["ash", "oak", "elm"], ROWS),
            "start": start,
            "end": start + rng.poisson(6, ROWS),
            "size": np.round(rng.gamma(2.0, 2.0, ROWS) + start / 10, 1),
        }
    )
    made.loc[rng.random(ROWS) < 0.2, "size"] = np.nan
    return made


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("query") / "t.csv"
    frame().to_csv(path, index=False)
    return path


@pytest.fixture
def run(cubicflow: Command, table: Path) -> Path:
    folder = table.parent / "run"
    if not folder.exists():
        done = cubicflow("fit", table, "-o", folder, "--steps", 40, "--device", "cpu")
        assert done.status == 0, done.errors
    return folder


def test_sampled_rows_meet_the_conditions(cubicflow: Command, run: Path, tmp_path: Path) -> None:
    given = ("--given", "kind in oak,elm", "--given", "size>5", "--given", "start<=30")
    done = cubicflow("sample", run, "-n", 200, "-o", tmp_path / "rows.csv", "--seed", 0, *given)
    assert done.status == 0, done.errors
    assert "effective size" in done.errors
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert len(rows) == 200
    assert rows["kind"].isin(["oak", "elm"]).all()
    assert (rows["size"] > 5).all()
    assert (rows["start"] <= 30).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("kind=oak,size=3", "write --given 'kind=oak' --given 'size=3'"),
        ("kind=oka", "did you mean 'oak'"),
        ("sise>3", "did you mean 'size'"),
        ("size in 9..3", "before it begins"),
        ("size", "a condition should be"),
    ],
)
def test_bad_conditions_are_refused_with_a_remedy(
    cubicflow: Command, run: Path, tmp_path: Path, given: str, message: str
) -> None:
    done = cubicflow("sample", run, "-n", 20, "-o", tmp_path / "rows.csv", "--given", given)
    assert done.status == 2
    assert message in done.errors
    assert done.errors.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_comma_between_options(cubicflow: Command, table: Path, tmp_path: Path) -> None:
    done = cubicflow("fit", table, "-o", tmp_path / "run", "--transform", "start=log,end=log")
    assert done.status == 2
    assert "write --transform 'start=log' --transform 'end=log'" in done.errors


def test_gaps_are_filled(cubicflow: Command, run: Path, tmp_path: Path) -> None:
    rows = frame().assign(note="a, b")
    rows.loc[::3, "kind"] = None
    rows.to_csv(tmp_path / "gaps.csv", index=False)
    done = cubicflow("impute", run, tmp_path / "gaps.csv", "-o", tmp_path / "filled.csv", "--draws", 2, "--seed", 1)
    assert done.status == 0, done.errors
    assert "filled" in done.errors
    for name in ("filled-01.csv", "filled-02.csv"):
        filled = pd.read_csv(tmp_path / name, keep_default_na=False)
        assert list(filled.columns) == [*rows.columns, "filled"]
        for column in rows.columns:
            there = rows[column].notna()
            assert (filled.loc[there, column].astype(str) == rows.loc[there, column].astype(str)).all()
        assert (filled["kind"] != "").all()
        assert (filled["filled"].str.contains("kind") == rows["kind"].isna()).all()
    again = cubicflow("impute", run, tmp_path / "gaps.csv", "-o", tmp_path / "filled-01.csv")
    assert again.status == 2
    assert "--overwrite" in again.errors
    assert cubicflow("impute", run, tmp_path / "gaps.csv", "-o", tmp_path / "best.csv", "--mode").status == 0
    for options in (("-o", "-", "--draws", 3), ("-o", tmp_path / "x.csv", "--mode", "--draws", 2)):
        assert cubicflow("impute", run, tmp_path / "gaps.csv", *options).status == 2


@pytest.mark.parametrize("failing", ["draw", "rename"])
def test_an_error_in_one_draw_changes_no_file(
    cubicflow: Command, run: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Draw 2 of 3 fails while its rows are computed, or its file cannot get its name."""
    names = [f"filled-0{k}.csv" for k in (1, 2, 3)]
    for name in names[:2]:
        (tmp_path / name).write_text("old")
    batches, replace = FilledTable.batches, Path.replace

    def batches_of(self: FilledTable, draw: int) -> Any:
        if draw == 1:
            raise TableError("the second draw fails")
        return batches(self, draw)

    def replace_by(self: Path, target: Path) -> Path:
        if target.name == names[1]:
            raise PermissionError(13, "Permission denied")
        return replace(self, target)

    if failing == "draw":
        monkeypatch.setattr(FilledTable, "batches", batches_of)
    else:
        monkeypatch.setattr(Path, "replace", replace_by)
    asked = ("impute", run, table, "-o", tmp_path / "filled.csv", "--draws", 3, "--overwrite")
    done = cubicflow(*asked)
    assert done.status == 2, done.errors
    assert ("the second draw fails" if failing == "draw" else "Permission denied") in done.errors
    assert done.errors.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == names[:2]
    assert [(tmp_path / name).read_text() for name in names[:2]] == ["old", "old"]


def test_constraints_are_kept(cubicflow: Command, table: Path, run: Path, tmp_path: Path) -> None:
    fit = ("fit", table, "-o", tmp_path / "run", "--steps", 20, "--device", "cpu")
    done = cubicflow(*fit, "--constraint", "start <= end")
    assert done.status == 0, done.errors
    for folder, options in ((tmp_path / "run", ()), (run, ("--constraint", "start <= end"))):
        done = cubicflow("sample", folder, "-n", 300, "-o", tmp_path / "rows.csv", "--overwrite", "--seed", 0, *options)
        assert done.status == 0, done.errors
        assert "broke a constraint and were drawn again" in done.errors
        rows = pd.read_csv(tmp_path / "rows.csv")
        assert len(rows) == 300
        assert (rows["start"] <= rows["end"]).all()
    for text, message in (("end < start", "break it, the first is row 1"), ("start <= ende", "did you mean 'end'")):
        refused = cubicflow("fit", table, "-o", tmp_path / "other", "--constraint", text)
        assert refused.status == 2
        assert message in refused.errors
        assert not (tmp_path / "other").exists()


def test_protect_formulas_is_refused_for_parquet(cubicflow: Command, run: Path, table: Path, tmp_path: Path) -> None:
    refused = cubicflow("impute", run, table, "-o", tmp_path / "filled.parquet", "--protect-formulas")
    assert refused.status == 2
    assert "--protect-formulas needs a .csv file or standard output" in refused.errors
    assert not (tmp_path / "filled.parquet").exists()
