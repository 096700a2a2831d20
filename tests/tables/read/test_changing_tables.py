"""Tables that change between or during passes are refused, or read as they were when they were opened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers.changing_tables import FORMATS, ROWS, WAYS, attack, numbers, write

from cubicflow.tables import TableError, open_table


@pytest.mark.parametrize("name", FORMATS)
def test_no_change_is_accepted_silently(tmp_path: Path, name: str) -> None:
    """Each change happens in the first and in the second pass. ``make soak`` tries it after every batch."""
    counts = attack(tmp_path, name, iter([0] if name == "t.npz" else [1, 6] if "csv" not in name else [1, 3]))
    assert counts.failures == []
    assert len(WAYS) >= 20
    # An archive is in memory before its first batch. Every change of the other formats is refused.
    assert counts["refused"] == (2 if name != "t.npz" else 1) * len(WAYS)


def test_the_error_names_the_changed_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(path, numbers())
    table = open_table(path)
    write(path, numbers(50))
    with pytest.raises(TableError, match=r"t\.parquet: the file changed while it was read; start again when no"):
        _ = list(table.batches())
    with pytest.raises(TableError, match="changed while it was read"):
        table.fingerprint()


def test_a_change_through_a_memory_map_is_refused(tmp_path: Path) -> None:
    """A page that is already mapped and written can change without a new modification time."""
    path = tmp_path / "t.npy"
    write(path, numbers())
    mapped = np.load(path, mmap_mode="r+")
    mapped[0] = mapped[0]
    opened = open_table(path)
    table = replace(opened, origin=replace(opened.origin, stamps=None))  # ignores the modification time
    assert sum(map(len, table.batches())) == ROWS
    mapped[50, 1] = 7
    with pytest.raises(TableError, match="changed while it was read"):
        _ = list(table.batches(["x1"]))


def test_a_folder_that_gains_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    write(path, numbers())
    table = open_table(path)
    assert sum(map(len, table.batches())) == ROWS
    pq.write_table(pa.table({"x0": [1.0], "x1": [1.0]}), path / "3.parquet")
    with pytest.raises(TableError, match="changed while it was read"):
        _ = list(table.batches())


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_of_a_file_of_numbers(tmp_path: Path, order: str) -> None:
    rows = np.asarray(np.random.default_rng(0).standard_normal((70, 3)), order=order)
    np.save(tmp_path / "t.npy", rows)
    table = open_table(tmp_path / "t.npy")
    for size in (1, 7, 70, 100):
        found = pa.Table.from_batches(table.batches(["x2", "x0"], size))
        np.testing.assert_array_equal(np.column_stack([found["x2"], found["x0"]]), rows[:, [2, 0]])
