"""Tables that are read in batches, their complete rows, and the split of rows into training, validation and test."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.table_error import TableError, some
from cubicflow.tables.watched_files import WatchedFiles, changed

if TYPE_CHECKING:
    from cubicflow.tables.text.formats import Format
    from cubicflow.tables.text.reading import Reading

BATCH_ROWS = 1 << 16
# Names that pandas gives a nameless index: in Parquet files, and in CSV files that were read and written again.
ROW_INDEX = r"__index_level_\d+__|Unnamed: 0(\.\d+)?"
BLOCKS = 64  # blocks of a file that its fingerprint covers
BLOCK_BYTES = 1 << 16
COMPLETE = "fit a model of columns, or leave such rows out"  # advice for rows that lack a value


class Table(ABC):
    """A table that can be read any number of times, in batches of rows.

    ``types`` holds the Arrow type of every column. The columns of a text file (``is_text``) are strings in every batch,
    whatever their types.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("a,b\\n1,x\\n2,y\\n")
    ...     [batch.to_pylist() for batch in open_table(f"{folder}/t.csv").batches(["b"])]
    [[{'b': 'x'}, {'b': 'y'}]]
    """

    is_text = False
    has_header = False  # whether the names are in a row that the user can choose
    delimiter: str | None = None  # the delimiter of a text file
    remarks: tuple[str, ...] = ()  # notes for the user on how the file was read
    formats: Mapping[str, Format] = MappingProxyType({})  # formats of columns with unusual numbers or dates

    def __init__(self, path: Path | str, types: dict[str, pa.DataType], watched: WatchedFiles | None = None) -> None:
        self.path: Any = path  # the path of a file, or the name of another table in messages
        self.types = types
        self.files = [Path(path)]  # all files of the table
        self._watched = watched  # created before names and types were read; None for a table in memory
        self._num_rows: int | None = None
        self._fingerprint: str | None = None

    @property
    def names(self) -> list[str]:
        return list(self.types)

    def _read_like(self, inner: Table) -> None:
        """Describe the text as the table does that this table wraps."""
        self.is_text, self.has_header, self.delimiter = inner.is_text, inner.has_header, inner.delimiter
        self._add_remarks(inner)
        self.formats = inner.formats

    def _add_remarks(self, inner: Table) -> None:
        """Add the remarks of the table that this table wraps. The first pass over its rows may have added some."""
        self.remarks = (*inner.remarks, *(remark for remark in self.remarks if remark not in inner.remarks))

    def batches(self, columns: Sequence[str] | None = None, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the named columns, or of all columns, from top to bottom.

        Raises TableError if a file has changed since the table was opened.
        """
        read = 0
        self._check_unchanged()
        try:
            for batch in self._read(self.names if columns is None else list(columns), rows):
                read += len(batch)
                yield batch
        except TableError:
            self._check_unchanged()  # a change of the file explains the error better
            raise
        self._check_unchanged()
        if self._num_rows is not None and read != self._num_rows:
            raise file_changed(self.path, self._num_rows, read)
        self._num_rows = read

    def _check_unchanged(self) -> None:
        """Raise TableError if a file has changed since the table was opened."""
        if self._watched is not None:
            self._watched.check()

    @abstractmethod
    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]: ...

    def spooled(self, columns: Sequence[str], folder: Path | None = None) -> Table:  # noqa: ARG002
        """Return the table with these columns in a form that is fast to read again. A columnar file already has that
        form.
        """
        return self

    def source(self) -> str | None:
        """Return where to find the table again; None for a table that cannot be read again."""
        return str(Path(self.path).resolve()) if self.files else None

    def fingerprint(self) -> str:
        """Return a hash of the sizes of the files and of up to 64 evenly spaced blocks of each.

        Files up to 4 MiB are hashed whole. Of a larger file only the blocks are hashed, so the time does not grow with
        the file.
        """
        if self._fingerprint is not None:  # computed while the file was read
            return self._fingerprint
        digest = hashlib.sha256()
        try:
            for path in self.files:
                size = path.stat().st_size
                digest.update(size.to_bytes(8, "big"))
                with path.open("rb") as file:
                    for first, last in fingerprint_blocks(size):
                        file.seek(first)
                        digest.update(file.read(last - first))
        finally:
            self._check_unchanged()
        return digest.hexdigest()


def fingerprint_of(content: bytes) -> str:
    """Return the fingerprint of a file with this content."""
    digest = hashlib.sha256(len(content).to_bytes(8, "big"))
    for first, last in fingerprint_blocks(len(content)):
        digest.update(content[first:last])
    return digest.hexdigest()


def fingerprint_blocks(size: int) -> list[tuple[int, int]]:
    """Return the (start, stop) bytes of every block that the fingerprint of a file covers."""
    if size <= BLOCKS * BLOCK_BYTES:
        return [(0, size)]
    starts = [(size - BLOCK_BYTES) * i // (BLOCKS - 1) for i in range(BLOCKS)]
    return [(start, start + BLOCK_BYTES) for start in starts]


def file_changed(path: object, before: int, after: int) -> TableError:
    """Return the error for a file with another number of rows in a later pass."""
    return changed(path, f": {before} rows were found at first, {after} later")


class MemoryTable(Table):
    """An Arrow table in memory. ``name`` is its name in messages.

    >>> MemoryTable(pa.table({"a": [1, 2]})).names
    ['a']
    """

    def __init__(self, rows: pa.Table, name: str = "the frame") -> None:
        check_names(name, rows.column_names)
        super().__init__(name, dict(zip(rows.column_names, rows.schema.types, strict=True)))
        self._rows, self.files = rows, []

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        yield from self._rows.select(columns).to_batches(max_chunksize=rows)


def open_table(path: str | Path, reading: Reading | None = None) -> Table:
    """Open the table at a path: .csv, .tsv, .jsonl (also .gz), .parquet, a folder of .parquet files, .feather, .arrow,
    .xlsx, .npy or .npz; or a built-in table by its name.

    The path may also be ``-`` for standard input, a URL ``https://...`` or ``s3://...``, a query
    ``duckdb:file?query=...`` or ``sqlite:file?query=...``, or a part of a workbook, ``xlsx:file?sheet=...&cells=...``.
    ``reading`` says which rows hold the names, which lines are comments, and in which formats columns are written.

    >>> open_table("gaussians").names  # doctest: +SKIP
    ['x', 'y']
    """
    from cubicflow.tables.files.by_name import open_file
    from cubicflow.tables.files.places import open_elsewhere
    from cubicflow.tables.text.found_formats import FormattedTable
    from cubicflow.tables.text.reading import Reading

    reading = reading or Reading()
    table = open_elsewhere(str(path), reading)
    if table is None:
        table = open_file(Path(path), reading)
    if table.is_text and (formats := {n: found for n, found in reading.formats.items() if n in table.types}):
        return FormattedTable(table, formats, {})
    return table


def check_names(path: object, names: Sequence[str]) -> None:
    """Raise TableError if a column has no name, or if two columns have the same name."""
    unnamed = [i + 1 for i, name in enumerate(names) if not name.strip()]
    if unnamed:
        raise TableError(
            f"{path}: column {', '.join(map(str, unnamed[:5]))} of {len(names)} has no name; give every column a name "
            "(a nameless first column is often a row index; write the table without it)"
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"{path}: more than one column is called {some(twice)}; give every column its own name")


# --- complete rows ---


class Missing(StrEnum):
    """The handling of rows that lack a value: ``error`` refuses the table, ``drop`` leaves those rows out, and
    ``model`` models missing values as values.

    >>> Missing("drop")
    <Missing.DROP: 'drop'>
    """

    ERROR = "error"
    DROP = "drop"
    MODEL = "model"

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise TableError(f"missing should be one of {', '.join(cls)}, got {value!r}")


@dataclass(frozen=True)
class Piece:
    """A batch of rows to use, after rows that lack a value are handled.

    Attributes:
        batch: the rows.
        numbers: their row numbers in the table, from 0.
        read: the number of rows read for this piece, including dropped ones.
        gaps: the number of missing values among the rows read.
    """

    batch: pa.RecordBatch
    numbers: NDArray[np.int64]
    read: int
    gaps: int = 0


def pieces(table: Table, columns: Sequence[str], missing: Missing | str = Missing.ERROR) -> Iterator[Piece]:
    """Yield the named columns piece by piece. Rows that lack a value are dropped, refused or kept, as ``missing`` says.

    With Missing.ERROR, the first missing value ends the stream. The rest of the table is read to count missing values,
    and TableError names the columns that have them.
    """
    start, missing = 0, Missing(missing)
    batches = table.batches(columns)
    for batch in batches:
        gaps = _gaps(batch)
        numbers = np.arange(start, start + len(batch))
        start += len(batch)
        if missing is Missing.MODEL or not gaps.any():
            yield Piece(batch, numbers, len(batch), int(gaps.sum()))
            continue
        if missing is Missing.ERROR:
            raise _incomplete(table, columns, start - len(batch), gaps, batches)
        whole = ~gaps.any(axis=0)
        yield Piece(batch.filter(pa.array(whole)), numbers[whole], len(batch), int(gaps.sum()))


def _gaps(batch: pa.RecordBatch) -> NDArray[np.bool_]:
    """Return a mask (columns, rows) of missing values."""
    return np.stack([pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False) for column in batch.columns])


def _incomplete(
    table: Table, columns: Sequence[str], before: int, first: NDArray[np.bool_], rest: Iterator[pa.RecordBatch]
) -> TableError:
    """Return the error for a table with missing values, the first of which comes after ``before`` complete rows."""
    totals, rows, read = np.zeros(len(columns), dtype=np.int64), 0, before
    for gaps in chain([first], map(_gaps, rest)):
        totals += gaps.sum(axis=1)
        rows += int(gaps.any(axis=0).sum())
        read += gaps.shape[1]
    empty = [name for name, count in zip(columns, totals.tolist(), strict=True) if count == read]
    if read == 1:
        return TableError(f"{table.path}: row 1 lacks a value, in {some(empty)}; {COMPLETE}", "--missing drop")
    if empty:
        return without_values(empty).about(table.path)
    found = ", ".join(f"{name!r} ({count})" for name, count in zip(columns, totals.tolist(), strict=True) if count)
    if rows == read:
        worst = columns[int(totals.argmax())]
        return TableError(
            f"{table.path}: every row lacks a value, in {found}; leave out the emptiest column, {worst!r}",
            f"--drop {worst}",
        )
    lack = "rows lack" if rows > 1 else "row lacks"
    return TableError(f"{table.path}: {rows} {lack} a value, in {found}; {COMPLETE}", "--missing drop")


def without_values(columns: Sequence[str]) -> TableError:
    """Return the error for columns without any value."""
    return TableError(f"column {some(columns)} has no values at all; leave it out", f"--drop {','.join(columns)}")


# --- the split into training, validation and test rows, which depends on the row's number alone ---

# Of every ten consecutive rows, one is for validation and one for the test, chosen by a hash of the seed and of the
# block's number. So the shares are exact, every stretch of the table is in every part, and a stream needs no state.
PARTS: tuple[str, ...] = ("train", "validation", "test")
BLOCK = 10


@dataclass(frozen=True)
class Split:
    """The split of a table into training, validation and test rows, reproducible from the seed.

    >>> Split(seed=1).parts_of(np.arange(10)).tolist()
    [0, 0, 0, 0, 0, 0, 0, 2, 1, 0]
    """

    parts: ClassVar[tuple[str, ...]] = PARTS  # parts that must have rows
    seed: int = 0

    def parts_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int8]:
        """Return 0, 1 or 2 (train, validation, test) for the rows with these numbers, counted from 0."""
        number = numbers.astype(np.uint64)
        block, place = number // np.uint64(BLOCK), number % np.uint64(BLOCK)
        drawn = scramble(block ^ scramble(np.array([self.seed], dtype=np.uint64)))
        validation = drawn % np.uint64(BLOCK)
        test = (validation + np.uint64(1) + (drawn >> np.uint64(32)) % np.uint64(BLOCK - 1)) % np.uint64(BLOCK)
        parts: NDArray[np.int8] = np.where(place == validation, 1, np.where(place == test, 2, 0)).astype(np.int8)
        return parts

    def resolved(self, table: Table) -> Split:  # noqa: ARG002 - used by splits that depend on the rows
        """Return the split of this table."""
        return self

    def to_json(self) -> dict[str, Any]:
        return {"rule": "one validation and one test row in every ten", "seed": self.seed}

    @classmethod
    def from_json(cls, value: Any) -> Split:
        """Return the split that :meth:`to_json` wrote. Raises TableError for anything invalid."""
        if not isinstance(value, dict) or not isinstance(value.get("seed"), int) or not 0 <= value["seed"] < 2**63:
            raise TableError(f"the split should have a seed, got {value!r}")
        if "column" in value:
            from cubicflow.tables.time_order import TimeSplit

            return TimeSplit.read(value)
        return cls(value["seed"])


class Undivided(Split):
    """A split with all rows for training, for callers with a validation of their own."""

    parts: ClassVar[tuple[str, ...]] = PARTS[:1]

    def parts_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int8]:
        return np.zeros(len(numbers), dtype=np.int8)


def scramble(number: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash 64-bit numbers by splitmix64 (Steele, Lea and Flood 2014), a bijection with nearly random outputs."""
    with np.errstate(over="ignore"):
        z = number + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class RowSample:
    """A uniform sample of ``size`` rows from a stream: the rows whose numbers have the smallest hashes.

    The sample does not depend on how the stream is cut into batches.
    """

    def __init__(self, size: int = 1 << 14) -> None:
        self.size = size
        self._kept: list[pa.RecordBatch] = []
        self._hashes: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)

    def update(self, batch: pa.RecordBatch, numbers: NDArray[np.int64]) -> None:
        """Add rows with these numbers."""
        hashes = np.concatenate([self._hashes, scramble(numbers.astype(np.uint64))])
        best = np.argsort(hashes)[: self.size]
        if self._kept and (best < len(self._hashes)).all():  # the sample does not change
            return
        rows = pa.Table.from_batches([*self._kept, batch]).take(pa.array(best))
        self._kept, self._hashes = rows.combine_chunks().to_batches(), hashes[best]

    def table(self) -> pa.Table:
        """Return the sample, in no particular order."""
        return pa.Table.from_batches(self._kept)
