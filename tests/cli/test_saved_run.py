"""Runs written by earlier code give the same scores, or are refused in one line.

``saved_runs`` has a model of columns of 200 rows of the table of every kind, and a flow of reals and steps with words
as context. Both were fitted for 120 steps, with seed 5, and scored their own rows. ``saved_run`` is a flow of a table
with words, which earlier code dequantised: `cubicflow fit table.csv -o run --drop note --context site --weights weight
--steps 300 --num-layers 2 --hidden-features 12 --num-blocks 1 --num-bins 4 --seed 5 --device cpu`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyarrow import csv
from tests.helpers.command_line import Command

from cubicflow.tables import FittedTable

SAVED = Path(__file__).with_name("saved_run")


@pytest.mark.parametrize("command", ["score", "sample"])
def test_an_old_flow_of_words_is_refused_in_one_line(cubicflow: Command, tmp_path: Path, command: str) -> None:
    what = [SAVED / "table.csv"] if command == "score" else ["-n", 5]
    refused = cubicflow(command, SAVED / "run", *what, "-o", tmp_path / "out.csv")
    assert refused.status == 2
    (line,) = refused.errors.splitlines()
    assert "this run is a flow, but its column 'alive' is boolean" in line
    assert "fit the table again, by a model of columns" in line


@pytest.mark.parametrize("name", ["columns", "flow"])
def test_old_runs_of_both_models_give_their_old_scores(name: str) -> None:
    folder = Path(__file__).with_name("saved_runs") / name
    options = csv.ConvertOptions(strings_can_be_null=True)
    rows = csv.read_csv(folder / "table.csv", convert_options=options)
    expected = csv.read_csv(folder / "scores.csv")["log_likelihood"].to_numpy()
    np.testing.assert_allclose(FittedTable.load(folder / "run").score(rows), expected, rtol=1e-5)
