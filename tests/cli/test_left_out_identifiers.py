"""Identifiers that fit leaves out: one note, --keep, and later commands that ignore them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.helpers.command_line import Command

from cubicflow.tables import FittedTable

SMALL = ("--steps", 2, "--hidden-features", 4, "--device", "cpu", "--seed", 0)
ROWS = 60


def people(first: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(first)
    number = np.arange(first, first + ROWS)
    kind = rng.choice(["ash", "oak"], ROWS)
    return pd.DataFrame(
        {"id": number, "email": [f"{i}@example.org" for i in number], "kind": kind, "size": rng.poisson(9, ROWS)}
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("people") / "t.csv"
    people().to_csv(path, index=False)
    return path


def test_identifiers_are_left_out_of_a_run(cubicflow: Command, table: Path, tmp_path: Path) -> None:
    done = cubicflow("fit", table, "-o", tmp_path / "run", *SMALL)
    assert done.status == 0, done.errors
    notes = [line for line in done.errors.splitlines() if line.startswith("note: identifiers are left out: 'id' (")]
    assert len(notes) == 1
    assert "'email' (texts that never repeat); to model one anyway, keep it with --keep id" in notes[0]
    assert [c.name for c in FittedTable.load(tmp_path / "run").schema.of_role("dropped")] == ["id", "email"]
    people(first=1_000).to_csv(tmp_path / "new.csv", index=False)
    people(first=1_000)[["kind", "size"]].to_csv(tmp_path / "bare.csv", index=False)
    scored = [cubicflow("score", tmp_path / "run", tmp_path / name, "-o", "-") for name in ("new.csv", "bare.csv")]
    assert scored[0] == scored[1]
    assert scored[0].status == 0
    samples = cubicflow("sample", tmp_path / "run", "-n", 5, "-o", "-").output
    assert samples.splitlines()[0] == '"kind","size"'
    assert cubicflow("impute", tmp_path / "run", tmp_path / "new.csv", "-o", "-").status == 0


def test_keep_models_identifiers(cubicflow: Command, table: Path, tmp_path: Path) -> None:
    done = cubicflow("fit", table, "-o", tmp_path / "run", "--keep", "id,email", *SMALL)
    assert done.status == 0, done.errors
    assert "identifiers" not in done.errors.replace("names or identifiers", "")
    samples = cubicflow("sample", tmp_path / "run", "-n", 5, "-o", "-").output
    assert samples.splitlines()[0] == '"id","email","kind","size"'
    unknown = cubicflow("fit", table, "-o", tmp_path / "other", "--keep", "nome", *SMALL)
    assert unknown.status == 2
    assert "there is no column 'nome'" in unknown.errors
