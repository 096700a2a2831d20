"""Change tables between and during passes, in many ways and after every batch. No changed table may be accepted."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv
from tests.helpers.counts import Counts

from cubicflow.tables import TableError, infer, open_table
from cubicflow.tables.read.table import Table
from cubicflow.tables.schema.plain_rows import PlainRows

ROWS = 100
FEW = 30  # rows in a batch; a pass has several batches
FORMATS = ("t.csv", "t.csv.gz", "t.parquet", "folder", "t.npy", "t.npz")


def numbers(rows: int = ROWS, shift: float = 0.0) -> np.ndarray:
    a = np.arange(rows) % 9 + shift
    return np.column_stack([a, np.linspace(1, 2, rows).round(3)])


def write(path: Path, rows: np.ndarray) -> None:
    table = pa.table({"x0": rows[:, 0], "x1": rows[:, 1]})
    match path.name:
        case "t.csv":
            arrow_csv.write_csv(table, path)
        case "t.csv.gz":
            sink = pa.BufferOutputStream()
            arrow_csv.write_csv(table, sink)
            path.write_bytes(gzip.compress(sink.getvalue().to_pybytes(), mtime=0))
        case "t.parquet":
            pq.write_table(table, path)
        case "folder":
            path.mkdir(exist_ok=True)
            pq.write_table(table.slice(0, 40), path / "1.parquet")
            pq.write_table(table.slice(40), path / "2.parquet")
        case "t.npy":
            np.save(path, rows)
        case "t.npz":
            np.savez(path, x0=rows[:, 0], x1=rows[:, 1])


def files(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else [path]


def in_place(path: Path, change: Callable[[bytearray], None]) -> None:
    """Change the bytes of a file in place."""
    with files(path)[-1].open("r+b") as file:
        content = bytearray(file.read())
        change(content)
        file.seek(0)
        file.truncate()
        file.write(content)


def renamed_over(path: Path, rows: np.ndarray) -> None:
    other = path.parent / "other"
    other.mkdir()
    write(other / path.name, rows)
    for old, new in zip(files(path), files(other / path.name), strict=True):
        new.replace(old)


def dates_kept(path: Path, change: Callable[[Path], None]) -> None:
    before = [file.stat() for file in files(path)]
    change(path)
    for file, stat in zip(files(path), before, strict=True):
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def flip(content: bytearray) -> None:
    """Flip one bit of the middle byte."""
    middle = len(content) // 2
    content[middle] = content[middle] ^ 1


def cut(start: int | None, stop: int | None = None, share: float = 0.0) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        first = int(len(content) * share) if start is None else start
        del content[first:stop]

    return change


def to_zeros(content: bytearray) -> None:
    content[:] = bytes(len(content))


def to_folder(path: Path) -> None:
    last = files(path)[-1]
    last.rename(path.parent / "away")
    last.mkdir()


def linked(path: Path) -> None:
    last = files(path)[-1]
    other = path.parent / "other"
    other.mkdir()
    write(other / path.name, numbers(shift=1))
    last.unlink()
    last.symlink_to(files(other / path.name)[-1])


WAYS: dict[str, Callable[[Path], None]] = {
    "shrinks": lambda path: write(path, numbers(60)),
    "shrinks by one row": lambda path: write(path, numbers(ROWS - 1)),
    "shrinks to one row": lambda path: write(path, numbers(1)),
    "grows": lambda path: write(path, numbers(300)),
    "grows by one row": lambda path: write(path, numbers(ROWS + 1)),
    "other values": lambda path: write(path, numbers(shift=1)),
    "other values of the same date": lambda path: dates_kept(path, lambda p: write(p, numbers(shift=1))),
    "one bit": lambda path: in_place(path, flip),
    "one bit of the same date": lambda path: dates_kept(path, lambda p: in_place(p, flip)),
    "rows in another order": lambda path: write(path, numbers()[::-1]),
    "columns in another order": lambda path: write(path, numbers()[:, ::-1]),
    "cut in the middle": lambda path: in_place(path, cut(None, share=0.5)),
    "cut by one byte": lambda path: in_place(path, cut(-1)),
    "empty": lambda path: in_place(path, bytearray.clear),
    "appended to": lambda path: in_place(path, lambda content: content.extend(b"9,9\n")),
    "zeros": lambda path: in_place(path, to_zeros),
    "renamed over": lambda path: renamed_over(path, numbers(shift=1)),
    "renamed over by the same rows": lambda path: renamed_over(path, numbers()),
    "removed": lambda path: files(path)[-1].unlink(),
    "a folder": to_folder,
    "a link to others": linked,
    "touched": lambda path: [os.utime(file) for file in files(path)],
}


class Moment:
    """An action that runs after a number of batches, counted over all passes."""

    def __init__(self, batches: int, what: Callable[[], object]) -> None:
        self.left, self.what, self.happened = batches, what, False

    def watch(self, table: Table) -> Table:
        """Return the table with a tick before and after every batch."""

        def read(columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
            self.tick()
            for batch in table.read(columns, FEW):
                yield batch
                self.tick()

        return replace(table, read=read)

    def tick(self) -> None:
        if self.left == 0:
            self.happened = True
            self.what()
        self.left -= 1


def read(path: Path, moment: Moment) -> tuple[np.ndarray, str]:
    """Return the rows that a fit reads from a table, and the fingerprint that it records."""
    table = moment.watch(open_table(path))
    found = infer(table)
    columns = PlainRows(found.schema).columns
    decoded = [np.asarray(column.decode(found.numbers[:, i]).to_pylist(), float) for i, column in enumerate(columns)]
    return np.column_stack(decoded), found.table.fingerprint()


def attack(folder: Path, name: str, whens: Iterator[int] | None = None) -> Counts:
    """Change a table of one format in every way, after every number of batches or after those in ``whens``. A table
    that is not refused must have its original rows and fingerprint."""
    honest = folder / "honest" / name
    honest.parent.mkdir(parents=True)
    write(honest, numbers())
    expected, mark = read(honest, Moment(-1, lambda: None))
    assert (expected == numbers()).all()
    chosen = None if whens is None else list(whens)
    counts = Counts()
    for way, change in WAYS.items():
        for when in range(100) if chosen is None else chosen:
            path = folder / f"{way} {when}" / name
            path.parent.mkdir()
            write(path, numbers())
            moment = Moment(when, lambda change=change, path=path: change(path))
            try:
                rows, found = read(path, moment)
            except TableError:
                counts.add("refused")
            else:
                if not moment.happened:  # all batches were read before the change
                    break
                if (rows.shape, found) != (expected.shape, mark) or not (rows == expected).all():
                    counts.fail(f"{name}: {way}, {when} batches in, is accepted")
                counts.add("read as they were")
    return counts
