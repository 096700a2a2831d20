"""Errors of a client whose program is absent or too old."""

from __future__ import annotations

import importlib
import sys

import pytest

from cubicflow import extras


@pytest.mark.parametrize("program", ["sbi", "nessai"])
def test_absent_and_old_programs_are_named_with_the_remedy(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, f"cubicflow.clients.{program}", raising=False)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, program, None)
        remedy = rf"needs {program}, which is not installed; use: pip install 'cubicflow\[{program}\]'$"
        with pytest.raises(ImportError, match=remedy):
            importlib.import_module(f"cubicflow.clients.{program}")
    monkeypatch.setattr(extras, "version", lambda _: "0.2.9")
    remedy = rf"needs {program} [\d.]+ or newer, found 0\.2\.9; use: pip install 'cubicflow\[{program}\]' --upgrade"
    with pytest.raises(ImportError, match=remedy):
        importlib.import_module(f"cubicflow.clients.{program}")


def test_importing_cubicflow_imports_neither_sbi_nor_nessai() -> None:
    import subprocess

    code = "import sys, cubicflow, cubicflow.clients; print(sorted({'sbi', 'nessai'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
