"""A small table, a run fitted to it, and the command line called in this process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.cli.pets import make_frame
from tests.helpers.command_line import cubicflow

from cubicflow.cli import main
from cubicflow.plots.marginals import marginals

__all__ = ["cubicflow"]


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "pets.csv"
    make_frame().to_csv(path, index=False)
    return path


FLOW = ("--model", "flow", "--num-layers", "2")


def _fit(folder: Path, table: Path, *options: str, model: tuple[str, ...] = FLOW) -> Path:
    settings = ["--steps", "20", *model, "--hidden-features", "8", "--device", "cpu", *options]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["cubicflow", "fit", str(table), "-o", str(folder), *settings])
        with pytest.raises(SystemExit) as stopped:
            main()
    assert stopped.value.code in (0, None)
    return folder


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, table: Path) -> Path:
    return _fit(tmp_path_factory.mktemp("runs") / "run", table, "--drop", "kind,tame")


@pytest.fixture(scope="session")
def narrow_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of two columns, whose pictures are drawn quickly."""
    folder = tmp_path_factory.mktemp("narrow")
    make_frame()[["weight", "size"]].to_csv(folder / "narrow.csv", index=False)
    return _fit(folder / "run", folder / "narrow.csv")


@pytest.fixture
def few_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw two columns instead of all, for tests of other things than the pictures."""
    monkeypatch.setattr("cubicflow.plots.report.most_correlated", lambda panels: panels[:2])
    monkeypatch.setattr("cubicflow.plots.report.marginals", lambda panels: marginals(panels[:2]))


@pytest.fixture(scope="session")
def columns_run(tmp_path_factory: pytest.TempPathFactory, table: Path) -> Path:
    return _fit(tmp_path_factory.mktemp("runs") / "columns", table, model=("--model", "columns"))


@pytest.fixture(scope="session")
def conditional_run(tmp_path_factory: pytest.TempPathFactory, table: Path) -> Path:
    return _fit(
        tmp_path_factory.mktemp("runs") / "given",
        table,
        "--context",
        "kind,size",
        "--weights",
        "weight",
        "--drop",
        "tame",
    )
