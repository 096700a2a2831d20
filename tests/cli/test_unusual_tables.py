"""The commands on tables with one row, without rows, with weights, and with words that look like operators."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.helpers import processes
from tests.helpers.command_line import Command
from tests.helpers.processes import run_command

from cubicflow.tables import Split

SMALL = ("--steps", 3, "--model", "flow", "--num-layers", 1, "--hidden-features", 4, "--device", "cpu")
RNG = np.random.default_rng(0)


@pytest.fixture
def weighted(tmp_path: Path) -> Path:
    path = tmp_path / "weighted.csv"
    x = RNG.standard_normal(100)
    pd.DataFrame({"x": x, "w": np.exp(2 * x)}).to_csv(path, index=False)
    return path


def fit(cubicflow: Command, table: Path, run: Path, *options: object) -> str:
    status, output, errors = cubicflow("fit", table, "-o", run, *SMALL, *options)
    assert status == 0, errors
    return output


def test_one_test_row_has_an_unknown_error(cubicflow: Command, tmp_path: Path) -> None:
    path = tmp_path / "ten.csv"
    pd.DataFrame({"x": RNG.standard_normal(10)}).to_csv(path, index=False)
    assert re.search(r"test log likelihood -\d+\.\d+ ± unknown nats over 1 rows", fit(cubicflow, path, tmp_path / "a"))
    fit(cubicflow, path, tmp_path / "b", "--num-bins", 3)
    output = cubicflow("compare", tmp_path / "a", tmp_path / "b", path).output
    assert "± unknown nats over 1 rows" in output
    assert output.endswith("at least two rows are needed to say which model is better\n")


def test_all_commands_use_the_weights_of_rows(cubicflow: Command, weighted: Path, tmp_path: Path) -> None:
    fitted = fit(cubicflow, weighted, tmp_path / "run", "--weights", "w")
    test = next(line for line in fitted.splitlines() if line.startswith("test log")).split()[3:6]
    evaluated = cubicflow("evaluate", tmp_path / "run", weighted).output
    assert next(line for line in evaluated.splitlines() if line.startswith("test")).split()[3:6] == test
    compared = cubicflow("compare", tmp_path / "run", tmp_path / "run", weighted).output
    assert f"run: {' '.join(test)} nats" in compared


def test_rows_of_weight_zero_have_an_unknown_score(cubicflow: Command, weighted: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(weighted)
    frame.loc[Split().parts_of(np.arange(len(frame))) == 2, "w"] = 0
    frame.to_csv(weighted, index=False)
    run = tmp_path / "run"
    assert "test log likelihood unknown (nothing to score: every weight is 0)" in fit(
        cubicflow, weighted, run, "--weights", "w"
    )
    status, output, _ = cubicflow("evaluate", run, weighted)
    assert status == 0
    (line,) = (line for line in output.splitlines() if line.startswith("test "))
    assert "unknown (nothing to score: every weight is 0) over 10 rows" in line
    assert "higher than test rows" not in output
    assert "nan" not in output
    status, _, errors = cubicflow("compare", run, run, weighted)
    assert status == 2
    assert "no row is left to compare: every remaining row has weight 0" in errors
    other = tmp_path / "other.csv"
    frame.assign(w=0).to_csv(other, index=False)
    status, _, errors = cubicflow("evaluate", run, other)
    assert status == 2
    assert "every row has weight 0, so there is no mean" in errors


def test_scores_of_no_rows_are_a_header_alone(cubicflow: Command, run: Path, table: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text(table.read_text().splitlines()[0] + "\n")
    for ending in ("csv", "parquet", "npy"):
        assert cubicflow("score", run, empty, "-o", tmp_path / f"s.{ending}").status == 0
    assert (tmp_path / "s.csv").read_text() == '"log_likelihood"\n'
    scores = pd.read_parquet(tmp_path / "s.parquet")
    assert list(scores.columns) == ["log_likelihood"]
    assert len(scores) == 0
    assert np.load(tmp_path / "s.npy").shape == (0,)
    assert cubicflow("score", run, empty, "-o", "-").output == '"log_likelihood"\n'


def test_context_values_need_not_be_in_the_training_rows(cubicflow: Command, tmp_path: Path) -> None:
    path, run, rows = tmp_path / "pay.csv", tmp_path / "run", tmp_path / "rows.csv"
    pay, k, size = RNG.choice(["<=50", ">50"], 100), RNG.integers(0, 5, 100), RNG.integers(0, 90, 100) / 4
    pd.DataFrame({"x": RNG.standard_normal(100), "pay": pay, "k": k, "size": size}).to_csv(path, index=False)
    fit(cubicflow, path, run, "--context", "pay,k,size")
    given = ("--given", "pay=<=50", "--given", "k=99", "--given", "size=3.125")
    status, _, errors = cubicflow("sample", run, "-n", 4, "-o", rows, *given)
    assert status == 0, errors
    samples = pd.read_csv(rows)
    assert samples[["pay", "k", "size"]].to_numpy().tolist() == [["<=50", 99, 3.125]] * 4
    assert cubicflow("score", run, rows, "-o", "-").status == 0
    status, _, errors = cubicflow("sample", run, "-n", 4, "-o", "-", "--given", "pay==50", *given[2:])  # as "pay=50"
    assert status == 2
    assert "column 'pay' holds '50', which the fitted table did not; it held '<=50', '>50'" in errors


def sample_without_standard_output(run: str) -> None:
    """Sample in the state of a process that a shell starts with ``>&-``."""
    os.close(1)
    sys.stdout = None
    run_command("sample", run, "-n", "5", "-o", "-")


def test_a_closed_standard_output_is_an_error(run: Path, tmp_path: Path) -> None:
    done = processes.start(sample_without_standard_output, str(run), log=tmp_path / "log")
    assert done.wait() == 2
    assert done.log.read_text() == "error: standard output is closed; open it, or give the name of a file\n"
