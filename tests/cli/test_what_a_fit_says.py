"""Output of fit and evaluate besides the log likelihood, and their warnings and errors."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
from tests.helpers.command_line import Command

from .pets import make_frame

NUMBER = r"\d+\.\d{3} ± \d+\.\d{3} nats"
SMALL = ("--model", "flow", "--drop", "kind,tame", "--num-layers", 1, "--hidden-features", 4, "--device", "cpu")


def test_fit_and_evaluate_print_the_same_scores(cubicflow: Command, tmp_path: Path) -> None:
    table, run = tmp_path / "pets.csv", tmp_path / "run"
    frame = make_frame(120)
    frame.loc[[3, 50], "size"] = None
    frame.loc[50, "legs"] = None
    frame.to_csv(table, index=False)
    status, fitted, errors = cubicflow("fit", table, "-o", run, *SMALL, "--steps", 5, "--missing", "drop")
    assert status == 0, errors
    assert "2 of 120 rows lack a value and are left out, 3 values in all" in errors
    status, evaluated, _ = cubicflow("evaluate", run, table)
    assert status == 0
    for line in (
        rf"independent columns score -{NUMBER}: the model (gains|loses) {NUMBER} a row",
        rf"training rows score {NUMBER} (higher|lower) than test rows",
        r"118 of 120 rows are used; the 2 left out lack 3 of their 10 values",
    ):
        found = [re.search(line, output) for output in (fitted, evaluated)]
        assert found[0] is not None, line
        assert found[1] is not None, line
        assert found[0][0] == found[1][0]
    frame.dropna().to_csv(tmp_path / "new.csv", index=False)
    evaluated = cubicflow("evaluate", run, tmp_path / "new.csv").output
    assert re.search(rf"independent columns score -{NUMBER}: the model (gains|loses) {NUMBER} a row", evaluated)
    assert "training rows" not in evaluated
    assert "all 118 rows are used, 590 values" in evaluated


def test_overfitting_is_warned_about(cubicflow: Command, tmp_path: Path) -> None:
    """The table is 160 training rows of noise, and the first validation is at the last step."""
    table, run = tmp_path / "noise.csv", tmp_path / "run"
    pd.DataFrame(np.random.default_rng(0).standard_normal((200, 8))).add_prefix("c").to_csv(table, index=False)
    how = ("--steps", 150, "--validate-every", 150, "--learning-rate", 0.02, "--dropout", 0, "--device", "cpu")
    how += ("--model", "flow", "--num-layers", 3, "--hidden-features", 32)
    status, _, errors = cubicflow("fit", table, "-o", run, *how)
    assert status == 0, errors
    assert "warning: training rows score" in errors
    assert "the model has memorised its training rows" in errors


def test_divergence_from_a_huge_learning_rate_names_the_learning_rate(
    cubicflow: Command, table: Path, tmp_path: Path
) -> None:
    how = (*SMALL, "--steps", 50, "--learning-rate", 1e9)
    status, _, errors = cubicflow("fit", table, "-o", tmp_path / "run", *how)
    assert status == 2
    (line,) = (line for line in errors.splitlines() if line.startswith("error: "))
    assert "(learning_rate=1e+09); lower learning_rate" in line
    assert "outliers;" not in line


def test_resuming_with_another_table_names_the_different_columns(cubicflow: Command, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    make_frame().drop(columns=["weight", "legs"]).assign(age=3.25).to_csv(other, index=False)
    status, _, errors = cubicflow("fit", other, "-o", run, *SMALL, "--resume")
    assert status == 2
    (line,) = (line for line in errors.splitlines() if line.startswith("error: "))
    assert "the new table has no column 'weight', 'legs'; column 'age' is new" in line
    assert "features" not in line
