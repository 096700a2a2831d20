"""What the tests of clients share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sbi and nessai write logs into the folder that they run in."""
    monkeypatch.chdir(tmp_path)
