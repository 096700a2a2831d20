"""Optional packages: the message for an absent, an old and a broken package, and the extras of pyproject.toml."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from cubicflow import extras
from cubicflow.extras import PACKAGES, Package, need


def test_every_extra_installs_its_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for name, package in PACKAGES.items():
        if package.extra:
            needed = " ".join(project["optional-dependencies"][package.extra])
            assert name in needed or name == "pillow", name  # matplotlib installs Pillow
            assert not package.oldest or f">={package.oldest}" in needed.partition(name)[2].split()[0], name


def test_an_absent_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    wanted = r"judging needs scikit-learn, which is not installed; use: pip install 'cubicflow\[sklearn\]'$"
    with pytest.raises(ImportError, match=wanted):
        need("scikit-learn", "judging")


def test_versions_are_compared_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "version", lambda _: "0.10.0.dev3+local")
    monkeypatch.setitem(PACKAGES, "torch", Package("everything", oldest="0.9.2"))
    need("torch", "this")
    monkeypatch.setitem(PACKAGES, "torch", Package("everything", oldest="0.11"))
    with pytest.raises(ImportError, match=r"this needs torch 0\.11 or newer, found 0\.10\.0\.dev3\+local"):
        need("torch", "this")


def test_the_error_of_an_installed_package_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import a_module_that_is_absent")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PACKAGES, "half_installed", Package("nothing"))
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_absent"):
        need("half_installed", "this")
