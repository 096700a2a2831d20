"""The Parquet files of a job as one table: rows numbered over all files, any block of them read by itself."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from cubicflow.clusters.blocks import Block
from cubicflow.clusters.outcomes import Skipped
from cubicflow.clusters.stores import Stamp, find_files, is_local, opened, readable_errors, shown, stamp
from cubicflow.tables.arrow_types import without_views
from cubicflow.tables.columnar_file import damaged, difference
from cubicflow.tables.source import MemoryTable, check_names, fingerprint_blocks
from cubicflow.tables.table_error import TableError
from cubicflow.tables.unpacking import check_unpacked
from cubicflow.tables.watched_files import changed

READERS = 16  # of footers, at once: object stores answer slowly, and many questions at a time
READ_ROWS = 1 << 16


class InputFile(NamedTuple):
    """A file, its rows, and what its store said of it when the job was planned."""

    place: str
    rows: int
    stamp: Stamp


class Segment(NamedTuple):
    """The rows of a block that are in one file, counted from 0 in that file."""

    file: InputFile
    first: int
    last: int


@dataclass(frozen=True)
class Inputs:
    """Parquet files of one schema. ``skipped`` are those that could not be used."""

    files: tuple[InputFile, ...]
    schema: pa.Schema
    skipped: tuple[Skipped, ...] = ()

    @property
    def rows(self) -> int:
        return self._starts[-1]

    @cached_property
    def _starts(self) -> list[int]:
        """The number of the first row of each file, and the number of all rows."""
        starts = [0]
        for file in self.files:
            starts.append(starts[-1] + file.rows)
        return starts

    def empty(self) -> MemoryTable:
        """Return a table without rows that has these columns, to be compared with a fitted one."""
        return MemoryTable(self.schema.empty_table(), shown(self.files[0].place))

    def segments(self, block: Block) -> Iterator[Segment]:
        """Where the rows of a block are."""
        number = max(bisect_right(self._starts, block.first) - 1, 0)
        while number < len(self.files) and self._starts[number] < block.last:
            start = self._starts[number]
            first, last = max(block.first - start, 0), min(block.last - start, self.files[number].rows)
            if first < last:
                yield Segment(self.files[number], first, last)
            number += 1

    def fingerprint(self) -> str | None:
        """What :meth:`~cubicflow.tables.Table.fingerprint` is of a table in these files; None where they are not on
        this machine."""
        if not all(is_local(file.place) for file in self.files):
            return None
        digest = hashlib.sha256()
        for file in self.files:
            store, path = opened(file.place)
            digest.update(file.stamp.size.to_bytes(8, "big"))
            with readable_errors(file.place), store.open_input_file(path) as opened_file:
                for first, last in fingerprint_blocks(file.stamp.size):
                    opened_file.seek(first)
                    digest.update(opened_file.read(last - first))
        return digest.hexdigest()

    def to_json(self) -> list[dict[str, Any]]:
        return [{"file": shown(file.place), "rows": file.rows, "stamp": list(file.stamp)} for file in self.files]


def plan_inputs(place: str, *, skip: bool = False) -> Inputs:
    """Return the files at a place. A damaged file, or one of another schema, is an error or, with ``skip``, set aside."""
    places = find_files(place)
    with ThreadPoolExecutor(min(READERS, len(places))) as pool:
        looked = list(pool.map(_look, places))
    files: list[InputFile] = []
    skipped: list[Skipped] = []
    schema: pa.Schema | None = None
    for file, found in zip(places, looked, strict=True):
        problem = found if isinstance(found, TableError) else None
        if not isinstance(found, TableError):
            own, rows, stamped = found
            if schema is None:
                schema = own
            if own.equals(schema):
                files.append(InputFile(file, rows, stamped))
                continue
            how = difference(shown(files[0].place), schema, shown(file), own)
            problem = TableError(f"{shown(place)}: the files are not parts of one table: {how}")
        assert problem is not None  # noqa: S101 - for the type checker
        if not skip:
            raise problem
        skipped.append(Skipped(shown(file), None, None, str(problem)))
    if schema is None:
        raise TableError(f"{shown(place)}: none of the {len(places)} files can be used: {skipped[0].reason}")
    check_names(shown(files[0].place), schema.names)
    return Inputs(tuple(files), schema, tuple(skipped))


def _look(place: str) -> tuple[pa.Schema, int, Stamp] | TableError:
    """What the footer of a file says, or what is wrong with it."""
    try:
        stamped = stamp(place)
        store, path = opened(place)
        with readable_errors(place), store.open_input_file(path) as stream:
            try:
                with parquet.ParquetFile(stream) as file:
                    return without_views(file.schema_arrow), file.metadata.num_rows, stamped
            except (pa.ArrowException, EOFError, OSError) as error:
                raise TableError(damaged(shown(place), error)) from None
    except TableError as error:
        return error


def read_segment(segment: Segment, columns: Sequence[str]) -> pa.Table:
    """Return the rows of a segment, some columns of them. Row groups before and after it are not read; of a row group that
    begins before it, the rows before it are read and dropped."""
    place = segment.file.place
    store, path = opened(place)
    if stamp(place) != segment.file.stamp:
        raise changed(shown(place))
    batches: list[pa.RecordBatch] = []
    with readable_errors(place), store.open_input_file(path) as stream:
        try:
            with parquet.ParquetFile(stream) as file:
                groups, before = _groups(file.metadata, segment)
                row, unpacked = before, 0
                for batch in file.iter_batches(READ_ROWS, row_groups=groups, columns=list(columns)):
                    start, row = row, row + len(batch)
                    if row <= segment.first:
                        continue
                    unpacked += batch.nbytes
                    check_unpacked(shown(place), segment.file.stamp.size, unpacked)
                    batch.validate(full=True)  # a damaged page can decode into values that point nowhere
                    first = max(segment.first - start, 0)
                    batches.append(batch.slice(first, min(segment.last - start, len(batch)) - first).select(columns))
                    if row >= segment.last:
                        break
        except (pa.ArrowException, EOFError, OSError) as error:
            raise TableError(damaged(shown(place), error)) from None
    found = pa.Table.from_batches(batches)
    if len(found) != segment.last - segment.first:
        raise changed(shown(place))
    return found.cast(without_views(found.schema))


def _groups(about: Any, segment: Segment) -> tuple[list[int], int]:
    """Return the row groups that hold a segment, and how many rows of the file come before them."""
    groups, before, row = [], 0, 0
    for number in range(about.num_row_groups):
        end = row + about.row_group(number).num_rows
        if end <= segment.first:
            before = end
        elif row < segment.last:
            groups.append(number)
        row = end
    return groups, before
