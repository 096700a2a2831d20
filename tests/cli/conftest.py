"""A small table, a run fitted to it, and the command line called in this process."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.command_line import Command, caller

from cubicflow.cli import main
from cubicflow.plots.marginals import marginals

ROWS = 200


@pytest.fixture
def cubicflow(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command and returns its exit status and what it wrote."""
    return caller("cubicflow", main, capfd, monkeypatch)


def make_frame(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    kind = rng.choice(["cat", "dog", "a, b"], rows)
    size = np.round(rng.normal(3, 1, rows) + (kind == "cat"), 2)
    return pd.DataFrame(
        {
            "kind": kind,
            "size": size,
            "weight": rng.gamma(2.0, 3.0, rows) + size,
            "legs": rng.poisson(3, rows),
            "planet": "earth",
            "tame": rng.random(rows) < 0.5,
            "born": pd.date_range("2020-01-01", periods=rows).strftime("%Y-%m-%d"),
        }
    )


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
    return _fit(tmp_path_factory.mktemp("runs") / "run", table)


@pytest.fixture(scope="session")
def narrow_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of two columns, whose pictures are drawn quickly."""
    folder = tmp_path_factory.mktemp("narrow")
    make_frame()[["kind", "size"]].to_csv(folder / "narrow.csv", index=False)
    return _fit(folder / "run", folder / "narrow.csv")


@pytest.fixture
def few_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw two columns instead of all, for tests of other things than the pictures."""
    monkeypatch.setattr("cubicflow.plots.run_report.most_correlated", lambda panels: panels[:2])
    monkeypatch.setattr("cubicflow.plots.run_report.marginals", lambda panels: marginals(panels[:2]))


@pytest.fixture(scope="session")
def columns_run(tmp_path_factory: pytest.TempPathFactory, table: Path) -> Path:
    return _fit(tmp_path_factory.mktemp("runs") / "columns", table, model=("--model", "columns"))


@pytest.fixture(scope="session")
def conditional_run(tmp_path_factory: pytest.TempPathFactory, table: Path) -> Path:
    return _fit(tmp_path_factory.mktemp("runs") / "given", table, "--context", "kind,size", "--weights", "weight")
