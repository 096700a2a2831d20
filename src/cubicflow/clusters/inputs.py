"""The Parquet files of a job as one table. Rows are numbered over all files, and each block can be read separately."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from cubicflow.clusters.blocks import Block, Skipped
from cubicflow.clusters.stores import Stamp, find_files, is_local, opened, readable_errors, shown, stamp
from cubicflow.data import parquet_files
from cubicflow.tables import TableError
from cubicflow.tables.read import (
    Table,
    changed,
    check_names,
    check_unpacked,
    fingerprint_of_files,
    in_memory,
    without_views,
)

READERS = 16  # footers read at once; object stores answer slowly but serve many requests in parallel
READ_ROWS = 1 << 16


class InputFile(NamedTuple):
    """A file, its number of rows, and its :class:`Stamp` when the job was planned."""

    place: str
    rows: int
    stamp: Stamp


class Segment(NamedTuple):
    """The rows of a block that are in one file, counted from 0 in that file, and the row number of the first one."""

    file: InputFile
    first: int
    last: int
    start: int


@dataclass(frozen=True)
class Inputs:
    """Parquet files with one schema. ``skipped`` lists files that could not be used."""

    files: tuple[InputFile, ...]
    schema: pa.Schema
    skipped: tuple[Skipped, ...] = ()

    @property
    def rows(self) -> int:
        return self._starts[-1]

    @cached_property
    def _starts(self) -> list[int]:
        """The row number at which each file starts, followed by the total number of rows."""
        starts = [0]
        for file in self.files:
            starts.append(starts[-1] + file.rows)
        return starts

    def empty(self) -> Table:
        """Return a table with these columns and no rows, for checks against the fitted table."""
        return in_memory(self.schema.empty_table(), shown(self.files[0].place))

    def segments(self, block: Block) -> Iterator[Segment]:
        """Yield the segments of files that hold the rows of a block, in order."""
        number = max(bisect_right(self._starts, block.first) - 1, 0)
        while number < len(self.files) and self._starts[number] < block.last:
            start = self._starts[number]
            first, last = max(block.first - start, 0), min(block.last - start, self.files[number].rows)
            if first < last:
                yield Segment(self.files[number], first, last, start + first)
            number += 1

    def row_name(self, row: int) -> tuple[str, int]:
        """Return the file of a row, and the row's number in that file, counted from 1."""
        number = bisect_right(self._starts, row) - 1
        return shown(self.files[number].place), row - self._starts[number] + 1

    def fingerprint(self) -> str | None:
        """Return the same value as :meth:`~cubicflow.tables.Table.fingerprint` of a table in these files.

        Returns None if some files are not on this machine.
        """
        if not all(is_local(file.place) for file in self.files):
            return None
        with readable_errors(self.files[0].place):
            return fingerprint_of_files([Path(opened(file.place)[1]) for file in self.files])

    def to_json(self) -> list[dict[str, Any]]:
        return [{"file": shown(file.place), "rows": file.rows, "stamp": list(file.stamp)} for file in self.files]


def plan_inputs(place: str, *, skip: bool = False) -> Inputs:
    """Return the Parquet files at a place, with their schema and row counts.

    A damaged file, or a file with another schema, raises TableError. With ``skip`` such a file goes to ``skipped``.
    """
    places = find_files(place)
    with ThreadPoolExecutor(min(READERS, len(places))) as pool:
        looked = list(pool.map(_look, places))
    files: list[InputFile] = []
    skipped: list[Skipped] = []
    schema: pa.Schema | None = None
    for one, found in zip(places, looked, strict=True):
        if not isinstance(found, TableError):
            file, own = found
            if schema is None or own.equals(schema):
                schema = own
                files.append(file)
                continue
            how = parquet_files.difference(shown(files[0].place), schema, shown(one), own)
            found = TableError(f"{shown(place)}: the files are not parts of one table: {how}")
        if not skip:
            raise found
        skipped.append(Skipped(shown(one), None, None, found.advice.message))
    if schema is None:
        raise TableError(
            f"{shown(place)}: none of the {len(places)} files can be used; the first error: {skipped[0].reason}"
        )
    check_names(shown(files[0].place), schema.names)
    return Inputs(tuple(files), schema, tuple(skipped))


@contextmanager
def _opened(place: str) -> Iterator[parquet.ParquetFile]:
    store, path = opened(place)
    with (
        readable_errors(place),
        store.open_input_file(path) as stream,
        parquet_files.opened(stream, shown(place), TableError) as file,
    ):
        yield file


def _look(place: str) -> tuple[InputFile, pa.Schema] | TableError:
    """Return a file and its schema, or the error of a file that cannot be read."""
    try:
        stamped = stamp(place)
        with _opened(place) as file:
            return InputFile(place, file.metadata.num_rows, stamped), without_views(file.schema_arrow)
    except TableError as error:
        return error


def read_segment(segment: Segment, columns: Sequence[str]) -> pa.Table:
    """Return some columns of a segment's rows."""
    place, stamped = segment.file.place, segment.file.stamp
    if stamp(place) != stamped:
        raise changed(shown(place))
    batches: list[pa.RecordBatch] = []
    unpacked = 0
    with _opened(place) as file:
        for batch in parquet_files.rows_between(file, columns, READ_ROWS, segment.first, segment.last):
            unpacked += batch.nbytes
            check_unpacked(shown(place), stamped.size, unpacked)
            batches.append(batch)
    found = pa.Table.from_batches(batches)
    if len(found) != segment.last - segment.first:
        raise changed(shown(place))
    return found.cast(without_views(found.schema))
