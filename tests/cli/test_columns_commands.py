"""The commands on a run of a model of columns."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.helpers.command_line import Command

from cubicflow.tables import FittedTable
from cubicflow.tables.judging.judgement import judge_matched

ROWS = 300


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    made = pd.DataFrame(
        {
            "kind": rng.choice(["ash", "oak", "elm"], ROWS),
            "size": np.round(rng.gamma(2.0, 2.0, ROWS), 1),
            "rest": np.where(rng.random(ROWS) < 0.5, 0.0, rng.exponential(size=ROWS)),
        }
    )
    made.loc[rng.random(ROWS) < 0.2, "size"] = np.nan
    return made


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("columns") / "t.csv"
    frame().to_csv(path, index=False)
    return path


@pytest.fixture
def run(cubicflow: Command, table: Path) -> Path:
    folder = table.parent / "run"
    if not folder.exists():
        done = cubicflow("fit", table, "-o", folder, "--steps", 40, "--device", "cpu")
        assert done.status == 0, done.errors
        assert "by a model of columns" in done.errors
        assert "missing values are modelled" in done.errors
    return folder


def numbers(text: str) -> np.ndarray:
    return pd.read_csv(io.StringIO(text), skip_blank_lines=False)["log_likelihood"].to_numpy()


def test_every_row_has_a_score(cubicflow: Command, run: Path, table: Path, tmp_path: Path) -> None:
    scores = numbers(cubicflow("score", run, table, "-o", "-").output)
    assert scores.shape == (ROWS,)
    assert np.isfinite(scores).all()
    alone = numbers(cubicflow("score", run, table, "-o", "-", "--observed-only").output)
    assert (alone > scores).all()  # the full score includes the probability that size is present, which is below 1
    dropped = numbers(cubicflow("score", run, table, "-o", "-", "--missing", "drop").output)
    np.testing.assert_array_equal(np.isnan(dropped), frame()["size"].isna())
    strange = frame().assign(more=1)
    strange.loc[4, "kind"] = "yew"
    strange.to_csv(tmp_path / "new.csv", index=False)
    done = cubicflow("score", run, tmp_path / "new.csv", "-o", "-")
    assert np.isfinite(numbers(done.output)).all()
    assert "1 values are not in the fitted table (1 in 'kind')" in done.errors
    assert "had no column 'more'" in done.errors
    refused = cubicflow("score", run, tmp_path / "new.csv", "-o", "-", "--unseen", "error")
    assert refused.status == 2
    assert "row 5 holds 'yew' in column 'kind'" in refused.errors


def test_samples_have_gaps_and_zeros(cubicflow: Command, run: Path, tmp_path: Path) -> None:
    for name, options in (("gaps", ()), ("whole", ("--complete",))):
        assert cubicflow("sample", run, "-n", 500, "-o", tmp_path / f"{name}.csv", "--seed", 0, *options).status == 0
    gaps, whole = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("gaps", "whole"))
    assert 0.05 < gaps["size"].isna().mean() < 0.4
    assert whole.notna().all().all()
    assert 0.3 < (gaps["rest"] == 0).mean() < 0.7
    assert (gaps["rest"] >= 0).all()
    refused = cubicflow("sample", run, "-n", 5, "-o", "-", "--temperature", 0.5)
    assert refused.status == 2
    assert "no temperature" in refused.errors


def test_evaluate_compare_and_plot(cubicflow: Command, run: Path, table: Path, tmp_path: Path) -> None:
    assert "over 30 rows" in cubicflow("evaluate", run, table).output
    assert "neither is better" in cubicflow("compare", run, run, table).output
    done = cubicflow("plot", run, "-o", tmp_path / "plots", "--rows", 100)
    assert done.status == 0, done.errors
    assert ": a model of columns of " in (tmp_path / "plots" / "report.html").read_text(encoding="utf-8")


def test_a_flow_is_compared_on_complete_rows(cubicflow: Command, table: Path, tmp_path: Path) -> None:
    how = ("--drop", "kind,rest", "--steps", 5, "--hidden-features", 8, "--device", "cpu")
    flow = ("--model", "flow", "--missing", "drop", "--num-layers", 1)
    assert cubicflow("fit", table, "-o", tmp_path / "flow", *how, *flow).status == 0
    assert cubicflow("fit", table, "-o", tmp_path / "columns", *how).status == 0
    assert "difference" in cubicflow("compare", tmp_path / "columns", tmp_path / "flow", table).output
    refused = cubicflow("fit", table, "-o", tmp_path / "other", "--model", "flow")
    assert "--missing drop" in refused.errors
    refused = cubicflow("fit", table, "-o", tmp_path / "other", "--num-layers", 3)
    assert "--model flow" in refused.errors


@pytest.mark.parametrize(
    ("dropped", "said"),
    [("rest", "column 'kind' is categorical"), ("kind", "column 'rest' is real, but 0 repeats in it")],
)
def test_a_flow_of_words_or_atoms_is_refused(
    cubicflow: Command, table: Path, tmp_path: Path, dropped: str, said: str
) -> None:
    how = ("--model", "flow", "--missing", "drop", "--drop", dropped)
    refused = cubicflow("fit", table, "-o", tmp_path / "run", *how)
    assert refused.status == 2
    (line,) = (line for line in refused.errors.splitlines() if line.startswith("error: "))
    assert said in line
    assert "--model columns" in line


def test_the_judge_keeps_gaps(cubicflow: Command, run: Path, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out, training and sampled rows with gaps are judged, unless ``--missing drop`` is given."""
    monkeypatch.setattr("cubicflow.tables.judging.measures.FOLDS", 2)
    seen: list[tuple[np.ndarray, ...]] = []
    monkeypatch.setattr(
        "cubicflow.tables.judging.rows.judge_matched",
        lambda matched, **how: seen.append(matched.tables) or judge_matched(matched, **how),
    )
    part = FittedTable.load(run).split.parts_of(np.arange(ROWS))
    is_gap = frame()["size"].isna().to_numpy()
    done = cubicflow("judge", run, table, "-o", "-")
    assert done.status == 0, done.errors
    assert json.loads(done.output)["rows"] == {"real": 30, "sampled": 30, "train": 240}
    real, sampled, train = seen[-1]
    assert np.isnan(real).sum() == is_gap[part == 2].sum() > 0
    assert np.isnan(train).sum() == is_gap[part == 0].sum()
    assert 0 < np.isnan(sampled).sum() < 20

    done = cubicflow("judge", run, table, "--missing", "drop", "-o", "-")
    assert done.status == 0, done.errors
    assert [len(rows) for rows in seen[-1]] == [(~is_gap & (part == 2)).sum()] * 2 + [(~is_gap & (part == 0)).sum()]
    assert not any(np.isnan(rows).any() for rows in seen[-1])
