"""Common fixtures of the tests of clients."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder: sbi and nessai write logs into the working folder."""
    monkeypatch.chdir(tmp_path)
