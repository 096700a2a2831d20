"""A run written by cubicflow 0.1.0 still gives the same scores and samples. The commands were:

`cubicflow fit table.csv -o run --drop note --context site --weights weight --steps 300 --num-layers 2
--hidden-features 12 --num-blocks 1 --num-bins 4 --seed 5 --device cpu`; then `score` and `sample -n 20 --seed 1`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv
from tests.helpers.command_line import Command

SAVED = Path(__file__).with_name("saved_run")


def test_an_old_run_gives_its_old_scores(cubicflow: Command, tmp_path: Path) -> None:
    cubicflow("score", SAVED / "run", SAVED / "table.csv", "-o", tmp_path / "scores.csv")
    found = csv.read_csv(tmp_path / "scores.csv")["log_likelihood"].to_numpy()
    expected = csv.read_csv(SAVED / "scores.csv")["log_likelihood"].to_numpy()
    np.testing.assert_allclose(found, expected, atol=2e-5)  # float32 noise at -20 nats


def test_an_old_run_gives_its_old_samples(cubicflow: Command, tmp_path: Path) -> None:
    cubicflow("sample", SAVED / "run", "-n", "20", "-o", tmp_path / "rows.csv", "--given", "site=north", "--seed", "1")
    found, expected = csv.read_csv(tmp_path / "rows.csv"), csv.read_csv(SAVED / "samples.csv")
    assert found.schema == expected.schema
    for name in expected.column_names:
        if pa.types.is_floating(expected[name].type):
            np.testing.assert_allclose(found[name].to_numpy(), expected[name].to_numpy(), rtol=1e-4)
        else:
            assert found[name].to_pylist() == expected[name].to_pylist()
