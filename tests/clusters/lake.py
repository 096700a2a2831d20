"""A mixed table in Parquet files, runs fitted to it, and what a job wrote."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from cubicflow.tables import FittedTable

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


def parts(folder: Path | str) -> dict[str, bytes]:
    """Return the parts of a job by file name."""
    return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("part-*.parquet"))}


def scores(folder: Path | str) -> np.ndarray:
    """Return the scores in a folder, in row order; NaN for a missing score."""
    table = pa.concat_tables(parquet.read_table(path) for path in sorted(Path(folder).glob("part-*.parquet")))
    return table.column("log_likelihood").to_numpy()
