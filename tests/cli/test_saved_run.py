"""Runs written by earlier code still give the same scores, and samples. The commands of ``saved_run`` were:

`cubicflow fit table.csv -o run --drop note --context site --weights weight --steps 300 --num-layers 2
--hidden-features 12 --num-blocks 1 --num-bins 4 --seed 5 --device cpu`; then `score` and `sample -n 20 --seed 1`.

``saved_runs`` has a model of columns of 200 rows of the table of every kind, and a flow of reals and steps with words
as context. Both were fitted for 120 steps, with seed 5, and scored their own rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from tests.helpers.command_line import Command

from cubicflow.tables import FittedTable

SAVED = Path(__file__).with_name("saved_run")


def test_an_old_run_gives_its_old_scores(cubicflow: Command, tmp_path: Path) -> None:
    cubicflow("score", SAVED / "run", SAVED / "table.csv", "-o", tmp_path / "scores.csv")
    found = csv.read_csv(tmp_path / "scores.csv")["log_likelihood"].to_numpy()
    expected = csv.read_csv(SAVED / "scores.csv")["log_likelihood"].to_numpy()
    np.testing.assert_allclose(found, expected, atol=2e-5)  # float32 noise at -20 nats


@pytest.mark.parametrize("name", ["columns", "flow"])
def test_old_runs_of_both_models_give_their_old_scores(name: str) -> None:
    folder = Path(__file__).with_name("saved_runs") / name
    options = csv.ConvertOptions(strings_can_be_null=True)
    rows = csv.read_csv(folder / "table.csv", convert_options=options)
    expected = csv.read_csv(folder / "scores.csv")["log_likelihood"].to_numpy()
    np.testing.assert_allclose(FittedTable.load(folder / "run").score(rows), expected, rtol=1e-5)


def test_an_old_run_gives_its_old_samples(cubicflow: Command, tmp_path: Path) -> None:
    cubicflow("sample", SAVED / "run", "-n", "20", "-o", tmp_path / "rows.csv", "--given", "site=north", "--seed", "1")
    found, expected = csv.read_csv(tmp_path / "rows.csv"), csv.read_csv(SAVED / "samples.csv")
    assert found.schema == expected.schema
    for name in expected.column_names:
        if pa.types.is_floating(expected[name].type):
            np.testing.assert_allclose(found[name].to_numpy(), expected[name].to_numpy(), rtol=1e-4)
        else:
            assert found[name].to_pylist() == expected[name].to_pylist()
