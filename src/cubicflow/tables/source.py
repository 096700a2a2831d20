"""A table: column names, types, batches of rows, never the whole; its complete rows; the parts they belong to."""

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
# pandas' names for an index that has none: in Parquet files, and in CSV files that were read and written again
ROW_INDEX = r"__index_level_\d+__|Unnamed: 0(\.\d+)?"
BLOCKS = 64  # of a file, whose hash is its fingerprint
BLOCK_BYTES = 1 << 16


class Table(ABC):
    """A table that can be read any number of times, a batch of rows at a time.

    ``types`` holds the arrow type of every column. The columns of a file of text (``is_text``) are strings in every
    batch, whatever their types.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("a,b\\n1,x\\n2,y\\n")
    ...     [batch.to_pylist() for batch in open_table(f"{folder}/t.csv").batches(["b"])]
    [[{'b': 'x'}, {'b': 'y'}]]
    """

    is_text = False
    has_header = False  # whether its names are in a row that can be chosen
    delimiter: str | None = None  # of a file of text
    remarks: tuple[str, ...] = ()  # on how it was read
    formats: Mapping[str, Format] = MappingProxyType({})  # of columns whose values are not written the plain way

    def __init__(self, path: Path | str, types: dict[str, pa.DataType], watched: WatchedFiles | None = None) -> None:
        self.path: Any = path  # what messages call it; of a file, its Path
        self.types = types
        self.files = [Path(path)]  # those that it is made of
        self._watched = watched  # from before its names and types were read; None for what is in memory
        self._num_rows: int | None = None
        self._fingerprint: str | None = None

    @property
    def names(self) -> list[str]:
        return list(self.types)

    def batches(self, columns: Sequence[str] | None = None, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The table from top to bottom; the named columns, or all. Every pass must find the files as they were when the
        table was opened."""
        read = 0
        self._check_unchanged()
        try:
            for batch in self._read(self.names if columns is None else list(columns), rows):
                read += len(batch)
                yield batch
        except TableError:
            self._check_unchanged()  # which says more than that half of a file cannot be read
            raise
        self._check_unchanged()
        if self._num_rows is not None and read != self._num_rows:
            raise file_changed(self.path, self._num_rows, read)
        self._num_rows = read

    def _check_unchanged(self) -> None:
        if self._watched is not None:
            self._watched.check()

    @abstractmethod
    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]: ...

    def spooled(self, columns: Sequence[str], folder: Path | None = None) -> Table:  # noqa: ARG002
        """The table with those columns in a form that is fast to read again. A columnar file has that form."""
        return self

    def source(self) -> str | None:
        """Where to find it again; None for what was read once and is gone."""
        return str(Path(self.path).resolve()) if self.files else None

    def fingerprint(self) -> str:
        """A hash of the sizes of the files and of up to 64 evenly spaced blocks of each, the first and last among them.

        Whole files up to 4 MiB; of larger ones a part, so that a terabyte takes no longer than a megabyte.
        """
        if self._fingerprint is not None:  # taken while the file was read
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
    """The same of a file whose bytes are at hand."""
    digest = hashlib.sha256(len(content).to_bytes(8, "big"))
    for first, last in fingerprint_blocks(len(content)):
        digest.update(content[first:last])
    return digest.hexdigest()


def fingerprint_blocks(size: int) -> list[tuple[int, int]]:
    """The first byte, and the one after the last, of every block that a file's fingerprint is made of."""
    if size <= BLOCKS * BLOCK_BYTES:
        return [(0, size)]
    starts = [(size - BLOCK_BYTES) * i // (BLOCKS - 1) for i in range(BLOCKS)]
    return [(start, start + BLOCK_BYTES) for start in starts]


def file_changed(path: object, before: int, after: int) -> TableError:
    """What is said of a file that has other rows in a later pass."""
    return changed(path, f": {before} rows were found at first, {after} later")


class MemoryTable(Table):
    """An arrow table that is in memory already. ``name`` is what messages call it.

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
    """The table at a path: .csv, .tsv, .jsonl (also .gz), .parquet, a folder of .parquet files, .feather, .arrow,
    .xlsx, .npy or .npz; or a built-in one by its name.

    Or somewhere else: ``-`` is standard input, ``https://...`` and ``s3://...`` are fetched, ``duckdb:file?query=...``
    and ``sqlite:file?query=...`` are what a query returns, ``xlsx:file?sheet=...&cells=...`` is a part of a workbook.
    ``reading`` says which rows hold the names, which lines are remarks, and how columns write their values.

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
    """Every column has a name, and no two the same."""
    unnamed = [i + 1 for i, name in enumerate(names) if not name.strip()]
    if unnamed:
        raise TableError(
            f"{path}: column {', '.join(map(str, unnamed[:5]))} of {len(names)} has no name; give every column a name "
            "(a nameless first column is often a row index that was written with the table: leave it out)"
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"{path}: more than one column is called {some(twice)}; give every column its own name")


# --- complete rows ---


class Missing(StrEnum):
    """What to do with rows that lack a value: refuse the table, leave those rows out, or model gaps as values.

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
    """Some complete rows: ``batch``, their ``numbers`` in the table from 0, how many rows were ``read`` for them, and
    how many values those lack (``gaps``)."""

    batch: pa.RecordBatch
    numbers: NDArray[np.int64]
    read: int
    gaps: int = 0


def pieces(table: Table, columns: Sequence[str], missing: Missing | str = Missing.ERROR) -> Iterator[Piece]:
    """The named columns of all complete rows; rows that lack a value are dropped or refused, or there with their gaps.

    With Missing.ERROR the first gap ends the stream: the rest of the table is read to count the gaps, and an error
    says how many there are in which columns.
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
    """(columns, rows), true where a value is missing."""
    return np.stack([pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False) for column in batch.columns])


def _incomplete(
    table: Table, columns: Sequence[str], before: int, first: NDArray[np.bool_], rest: Iterator[pa.RecordBatch]
) -> TableError:
    """What is said of a table with gaps, the first of them after ``before`` rows without."""
    totals, rows, read = np.zeros(len(columns), dtype=np.int64), 0, before
    for gaps in chain([first], map(_gaps, rest)):
        totals += gaps.sum(axis=1)
        rows += int(gaps.any(axis=0).sum())
        read += gaps.shape[1]
    if empty := [name for name, count in zip(columns, totals.tolist(), strict=True) if count == read]:
        return without_values(empty).about(table.path)
    found = ", ".join(f"{name!r} ({count})" for name, count in zip(columns, totals.tolist(), strict=True) if count)
    if rows == read:
        worst = columns[int(totals.argmax())]
        return TableError(
            f"{table.path}: every row lacks a value, in {found}; leave out the column that lacks most, {worst!r}",
            f"--drop {worst}",
        )
    lack = "rows lack" if rows > 1 else "row lacks"
    return TableError(f"{table.path}: {rows} {lack} a value, in {found}; leave such rows out", "--missing drop")


def without_values(columns: Sequence[str]) -> TableError:
    """The refusal of columns that are all gaps."""
    return TableError(f"column {some(columns)} has no values at all; leave it out", f"--drop {','.join(columns)}")


# --- which rows are for training, which for validation, which for the test: decided from the row's number alone ---

# In every ten consecutive rows one is for validation and one for the test, drawn from a hash of the seed and the ten's
# number. So the shares are exact, every stretch of the table is in every part, and a stream of rows needs no memory.
PARTS: tuple[str, ...] = ("train", "validation", "test")
BLOCK = 10


@dataclass(frozen=True)
class Split:
    """The parts of a table, reproducible from the seed.

    >>> Split(seed=1).parts_of(np.arange(10)).tolist()
    [0, 0, 0, 0, 0, 0, 0, 2, 1, 0]
    """

    parts: ClassVar[tuple[str, ...]] = PARTS  # those that must have rows
    seed: int = 0

    def parts_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int8]:
        """0, 1, 2 for train, validation, test of the rows with these numbers, counted from 0."""
        number = numbers.astype(np.uint64)
        block, place = number // np.uint64(BLOCK), number % np.uint64(BLOCK)
        drawn = scramble(block ^ scramble(np.array([self.seed], dtype=np.uint64)))
        validation = drawn % np.uint64(BLOCK)
        test = (validation + np.uint64(1) + (drawn >> np.uint64(32)) % np.uint64(BLOCK - 1)) % np.uint64(BLOCK)
        parts: NDArray[np.int8] = np.where(place == validation, 1, np.where(place == test, 2, 0)).astype(np.int8)
        return parts

    def settled(self, table: Table) -> Split:  # noqa: ARG002 - for splits that look at the rows
        """The split of this very table."""
        return self

    def to_json(self) -> dict[str, Any]:
        return {"rule": "one validation and one test row in every ten", "seed": self.seed}

    @classmethod
    def from_json(cls, value: Any) -> Split:
        if not isinstance(value, dict) or not isinstance(value.get("seed"), int) or not 0 <= value["seed"] < 2**63:
            raise TableError(f"the split should be a seed, got {value!r}")
        if "column" in value:
            from cubicflow.tables.time_order import TimeSplit

            return TimeSplit.read(value)
        return cls(value["seed"])


class Undivided(Split):
    """Every row is for training: whoever fits sees to validation in another way."""

    parts: ClassVar[tuple[str, ...]] = PARTS[:1]

    def parts_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int8]:
        return np.zeros(len(numbers), dtype=np.int8)


def scramble(number: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64 (Steele, Lea and Flood 2014): a bijection of 64 bits whose outputs pass for random."""
    with np.errstate(over="ignore"):
        z = number + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class RowSample:
    """A fair sample of a stream of rows, the same however it is cut: ``size`` rows, whose numbers have the smallest
    hashes."""

    def __init__(self, size: int = 1 << 14) -> None:
        self.size = size
        self._kept: list[pa.RecordBatch] = []
        self._hashes: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)

    def see(self, batch: pa.RecordBatch, numbers: NDArray[np.int64]) -> None:
        hashes = np.concatenate([self._hashes, scramble(numbers.astype(np.uint64))])
        best = np.argsort(hashes)[: self.size]
        if self._kept and (best < len(self._hashes)).all():  # nothing new
            return
        rows = pa.Table.from_batches([*self._kept, batch]).take(pa.array(best))
        self._kept, self._hashes = rows.combine_chunks().to_batches(), hashes[best]

    def table(self) -> pa.Table:
        """The sample, in no particular order."""
        return pa.Table.from_batches(self._kept)
