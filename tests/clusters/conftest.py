"""A mixed table in Parquet files, a model of columns and a flow fitted to it, and the command line in this process."""

from __future__ import annotations

import math

import pytest
from pyarrow import parquet
from tests.helpers.command_line import cubicflow

from cubicflow.tables import TableOptions, fit_table

from .lake import ROWS, Scene, mixed, write_lake

__all__ = ["cubicflow"]


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print no progress of a job: on a loaded machine it would mix with the messages that a test counts."""
    monkeypatch.setattr("cubicflow.clusters.jobs.PAUSE", math.inf)


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("clusters")
    folder.chmod(0o755)
    rows = mixed(ROWS)
    write_lake(folder / "lake", rows)
    parquet.write_table(rows, folder / "whole.parquet")
    small = {"hidden_features": 8}
    train = {"steps": 10, "progress": False, "device": "cpu", "seed": 1}
    fit_table(folder / "whole.parquet", folder / "columns", TableOptions(drop=["id"]), small, **train)
    options = TableOptions(drop=["id", "size", "kind"])
    fit_table(folder / "whole.parquet", folder / "flow", options, {**small, "num_layers": 1}, model="flow", **train)
    return Scene(folder, rows, folder / "columns", folder / "flow")
