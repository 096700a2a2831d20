"""The command line called in this process, and a small table in the form of MINIBOONE's splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from paper.__main__ import main
from tests.helpers.command_line import Command, caller

from .tiny_table import CELLS, ROWS, TINY_TABLE


@pytest.fixture
def paper(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs ``python -m paper`` in this process and returns its exit status and what it wrote."""
    return caller("paper", main, capfd, monkeypatch)


@pytest.fixture
def table_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a data folder with a synthetic MINIBOONE only: correlated columns, and weights for the training rows."""
    monkeypatch.setenv("CUBICFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CUBICFLOW_DATA", raising=False)
    folder = tmp_path / "data" / "miniboone"
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    mixing = random.normal(size=(43, 43)) / np.sqrt(43)
    for split, rows in ROWS.items():
        np.save(folder / f"{split}.npy", (random.normal(size=(rows, 43)) @ mixing).astype(np.float32))
    np.save(folder / "train_weights.npy", random.uniform(0.5, 2, ROWS["train"]).astype(np.float32))
    return folder.parent


@pytest.fixture
def tiny_table(tmp_path: Path) -> Path:
    """Return a recipe for the synthetic table that takes seconds."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY_TABLE)
    return path


@pytest.fixture
def command(table_data: Path, tiny_table: Path) -> tuple[object, ...]:
    return ("table-1", "--data", table_data, "--recipe", tiny_table, *CELLS)
