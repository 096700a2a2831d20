"""Two small fitted tables: words whose joint can be enumerated, and a mixed one with gaps, atoms and rules."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from cubicflow.tables import FittedTable, fit_table

from .frames import mixed, words

TRAINING = {"steps": 80, "device": "cpu", "progress": False, "validate_every": 40}


def _fit(folder: Path, frame: pd.DataFrame, **options: object) -> FittedTable:
    from cubicflow.tables import TableOptions

    frame.to_csv(folder / "t.csv", index=False)
    fit_table(folder / "t.csv", folder / "run", TableOptions(**options), **TRAINING)
    return FittedTable.load(folder / "run")


@pytest.fixture(scope="session")
def of_words(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    return _fit(tmp_path_factory.mktemp("words"), words())


@pytest.fixture(scope="session")
def of_mixed(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    return _fit(tmp_path_factory.mktemp("mixed"), mixed(), drop=("id",))
