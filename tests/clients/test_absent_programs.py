"""Errors of a client whose program is absent or too old."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from cubicflow.clients import installed


@pytest.mark.parametrize("program", ["sbi", "nessai"])
def test_absent_and_old_programs_are_named_with_the_remedy(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, f"cubicflow.clients.{program}", raising=False)

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installed, "version", absent)
    remedy = rf"needs {program}, which is not installed; pip install 'cubicflow\[{program}\]'"
    with pytest.raises(ImportError, match=remedy):
        importlib.import_module(f"cubicflow.clients.{program}")
    monkeypatch.setattr(installed, "version", lambda _: "0.2.9")
    remedy = rf"needs {program} [\d.]+ or newer, found 0\.2\.9; pip install -U 'cubicflow\[{program}\]'"
    with pytest.raises(ImportError, match=remedy):
        importlib.import_module(f"cubicflow.clients.{program}")


def test_releases_are_compared_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "version", lambda _: "0.10.0.dev3+local")
    installed.demand("sbi", "0.9.2")
    with pytest.raises(ImportError, match=r"needs sbi 0\.11 or newer, found 0\.10\.0\.dev3\+local"):
        installed.demand("sbi", "0.11")


def test_importing_cubicflow_imports_neither_sbi_nor_nessai() -> None:
    import subprocess

    code = "import sys, cubicflow, cubicflow.clients; print(sorted({'sbi', 'nessai'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
