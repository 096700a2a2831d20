"""A mixed table in Parquet files, a model of columns and a flow fitted to it, and the command line in this process."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.cli.conftest import cubicflow
from tests.command_line import Command

from cubicflow.tables import FittedTable, fit_table

__all__ = ["Command", "cubicflow"]

ROWS = 700
PER_FILE = (300, 0, 250, 150)  # rows of each file; one file is empty, and no file ends at the end of a block
BLOCK_ROWS = 64


def mixed(rows: int, seed: int = 0) -> pa.Table:
    """Return words, steps, real numbers and gaps, with a key."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["ash", "oak", "elm"], rows)
    size = np.round(rng.gamma(2.0, 2.0, rows) + (kind == "oak"), 1)
    height = rng.normal(10, 2, rows) + size
    gaps = rng.random(rows) < 0.1
    columns = {"id": np.arange(rows), "kind": kind, "height": height}
    return pa.table({**columns, "size": pa.array(size, mask=gaps)})


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print no progress of a job: on a loaded machine it would mix with the messages that a test counts."""
    monkeypatch.setattr("cubicflow.cli.engine_options.SECONDS_BETWEEN_LINES", math.inf)


class Scene(NamedTuple):
    """The places of the files and of the runs. The rows of all files, in name order, are ``rows``."""

    folder: Path
    rows: pa.Table
    columns: Path
    flow: Path

    @property
    def files(self) -> str:
        return str(self.folder / "lake" / "*.parquet")

    def model(self, name: str) -> FittedTable:
        return FittedTable.load(getattr(self, name), "cpu")


def write_lake(folder: Path, rows: pa.Table) -> None:
    folder.mkdir()
    start = 0
    for i, count in enumerate(PER_FILE):
        parquet.write_table(rows[start : start + count], folder / f"{i}.parquet", row_group_size=90)
        start += count


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("clusters")
    folder.chmod(0o755)
    rows = mixed(ROWS)
    write_lake(folder / "lake", rows)
    parquet.write_table(rows, folder / "whole.parquet")
    small = {"hidden_features": 8}
    train = {"steps": 10, "progress": False, "device": "cpu", "seed": 1}
    from cubicflow.tables import TableOptions

    fit_table(folder / "whole.parquet", folder / "columns", TableOptions(drop=["id"]), small, **train)
    options = TableOptions(drop=["id", "size"])
    fit_table(folder / "whole.parquet", folder / "flow", options, {**small, "num_layers": 1}, model="flow", **train)
    return Scene(folder, rows, folder / "columns", folder / "flow")


def parts(folder: Path | str) -> dict[str, bytes]:
    """Return the parts of a job by file name."""
    return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("part-*.parquet"))}


def scores(folder: Path | str) -> np.ndarray:
    """Return the scores in a folder, in row order; NaN for a missing score."""
    table = pa.concat_tables(parquet.read_table(path) for path in sorted(Path(folder).glob("part-*.parquet")))
    return table.column("log_likelihood").to_numpy()
