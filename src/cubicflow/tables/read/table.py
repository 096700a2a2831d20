"""The record of a table: its columns, a function that reads its rows, where the rows come from, and how they are
written."""

from __future__ import annotations

import mmap
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from itertools import islice
from pathlib import Path

import pyarrow as pa

from cubicflow.tables.arrow_types import narrowest
from cubicflow.tables.read.file_checks import Stamps, changed, fingerprint_of_files
from cubicflow.tables.read.text.notations import AnyNotation
from cubicflow.tables.table_error import TableError, some

BATCH_ROWS = 1 << 16
MOST_IN_MEMORY = 1 << 26  # bytes of text; more of it goes to a temporary file
# Texts that mean a missing value, as in pandas and Arrow.
MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
# Names that pandas gives a nameless index: in Parquet files, and in CSV files that were read and written again.
ROW_INDEX = r"__index_level_\d+__|Unnamed: 0(\.\d+)?"

Read = Callable[[list[str], int], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Origin:
    """Where the rows of a table come from.

    Attributes:
        source: where to find the table again; None for a table that cannot be read again.
        files: the files that the fingerprint covers.
        stamps: the stamps of the files, made before names and types were read; None for rows in memory.
    """

    source: str | None = None
    files: tuple[Path, ...] = ()
    stamps: Stamps | None = None

    @classmethod
    def of(cls, path: Path, find: Callable[[], Sequence[Path]] | None = None) -> Origin:
        """Return the origin of a table that is read from a file, or from the files that ``find`` returns, and stamp
        them."""
        find = find or (lambda: [path])
        stamps = Stamps(find)
        return cls(str(path.resolve()), tuple(find()), stamps)


@dataclass(frozen=True)
class Text:
    """How a table of text is written.

    Attributes:
        delimiter: the delimiter of a CSV file.
        has_header: whether the names are in a row that the user can choose.
        notations: the notations of columns whose numbers or dates are not written plainly.
    """

    delimiter: str | None = None
    has_header: bool = False
    notations: dict[str, AnyNotation] = field(default_factory=dict)


@dataclass
class Found:
    """Facts that a pass over all rows finds. All tables with the same rows share them."""

    rows: int | None = None
    fingerprint: str | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table that can be read any number of times, in batches of rows.

    A reader is a function that returns a table. To change how rows are read, make another table with
    ``dataclasses.replace(table, read=...)``.

    Attributes:
        name: the name in messages: the path of a file, or a phrase.
        types: the Arrow type of every column. The columns of a table of text are strings in every batch, whatever their
            types.
        read: yields the rows of some columns, in batches of at most so many rows, as they are written.
        origin: where the rows come from.
        text: how the text is written; None for a table of typed values.
        notes: remarks for the user on how the table is read, before any row is read.
        found: facts that the first pass over the rows finds.

    >>> import tempfile
    >>> from cubicflow.tables import open_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("a,b\\n1,x\\n2,y\\n")
    ...     [batch.to_pylist() for batch in open_table(f"{folder}/t.csv").batches(["b"])]
    [[{'b': 'x'}, {'b': 'y'}]]
    """

    name: str
    types: Mapping[str, pa.DataType]
    read: Read = field(repr=False)
    origin: Origin = Origin()
    text: Text | None = None
    notes: tuple[str, ...] = ()
    found: Found = field(default_factory=Found)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.types)

    @property
    def is_text(self) -> bool:
        """Whether the values of every batch are strings."""
        return self.text is not None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks for the user on how the table is read. A pass over the rows may add some."""
        return (*self.found.remarks, *self.notes)

    @property
    def notations(self) -> dict[str, AnyNotation]:
        """The notations of columns whose numbers or dates are not written plainly."""
        return {} if self.text is None else self.text.notations

    def batches(self, columns: Sequence[str] | None = None, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the named columns, or of all columns, from top to bottom. Text is in plain notation.

        Raises TableError if a file has changed since the table was opened.
        """
        for batch in self._as_written(self.names if columns is None else list(columns), rows):
            yield self._plain(batch)

    def _as_written(self, columns: list[str], rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield rows in the table's own notations, and check that nothing has changed."""
        read = 0
        self._check_unchanged()
        try:
            for batch in self.read(columns, rows or BATCH_ROWS):
                read += len(batch)
                yield batch
        except TableError:
            self._check_unchanged()  # a change of the file explains the error better
            raise
        self._check_unchanged()
        if self.found.rows is not None and read != self.found.rows:
            raise changed(self.name, self.found.rows, read)
        self.found.rows = read

    def _plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.notations.keys().isdisjoint(batch.schema.names):
            return batch
        columns = zip(batch.schema.names, batch.columns, strict=True)
        plain = [self.notations[name].to_plain(text) if name in self.notations else text for name, text in columns]
        return pa.RecordBatch.from_arrays(plain, names=batch.schema.names)

    def _check_unchanged(self) -> None:
        if self.origin.stamps is not None and not self.origin.stamps.are_current():
            raise changed(self.name)

    def spooled(self, columns: Sequence[str], folder: Path | None = None) -> Table:
        """Return the table with these columns in a form that is fast to read again.

        A table of text is read once. Its rows are kept in memory or, if there are many, in a temporary file in the
        folder, and each column gets the narrowest type that all of its rows fit. Other tables have that form already.
        """
        if self.text is None:
            return self
        types: dict[str, pa.DataType] = dict.fromkeys(columns, pa.null())

        def typed() -> Iterator[pa.RecordBatch]:
            for batch in self._as_written(list(columns)):
                for name, values in zip(columns, self._plain(batch).columns, strict=True):
                    types[name] = narrowest(values, types[name])
                yield batch

        if isinstance(self.read, Kept):
            deque(typed(), maxlen=0)
            rows = self.read.rows.select(list(columns))
        else:
            rows = spool(self.name, typed(), pa.schema(dict.fromkeys(columns, pa.string())), folder)
        typed_as = {name: found.plain_type(types[name]) for name, found in self.notations.items() if name in types}
        text = replace(self.text, notations={n: found for n, found in self.notations.items() if n in types})
        return replace(self, types={**types, **typed_as}, read=Kept(rows), text=text).settled()

    def settled(self) -> Table:
        """Return the table, whose rows are kept, with the fingerprint of its files, which may change from now on."""
        self.found.fingerprint = self.fingerprint()
        return replace(self, origin=replace(self.origin, stamps=None))

    def fingerprint(self) -> str:
        """Return a hash of the files, or of the rows of a query. It tells whether a table is the fitted one."""
        if self.found.fingerprint is not None:
            return self.found.fingerprint
        try:
            return fingerprint_of_files(self.origin.files)
        finally:
            self._check_unchanged()


@dataclass(frozen=True)
class Kept:
    """A function that reads rows in memory."""

    rows: pa.Table

    def __call__(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        yield from self.rows.select(columns).to_batches(max_chunksize=rows)


def in_memory(rows: pa.Table, name: str = "the frame", *, is_text: bool = False) -> Table:
    """Return the table with these rows. Columns of text (``is_text``) hold values of any type in plain notation.

    >>> in_memory(pa.table({"a": [1, 2]})).names
    ['a']
    """
    return Table(name, types_of(name, rows.schema), Kept(rows), text=Text() if is_text else None)


def types_of(name: object, schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the type of every column. Raises TableError as :func:`check_names` does."""
    check_names(name, schema.names)
    return dict(zip(schema.names, schema.types, strict=True))


def check_names(table: object, names: Sequence[str]) -> None:
    """Raise TableError if a column has no name, or if two columns have the same name."""
    unnamed = [i + 1 for i, name in enumerate(names) if not name.strip()]
    if unnamed:
        raise TableError(
            f"{table}: column {', '.join(map(str, unnamed[:5]))} of {len(names)} has no name; give every column a name "
            "(a nameless first column is often a row index; write the table without it)"
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"{table}: more than one column is called {some(twice)}; give every column its own name")


def spool(name: object, batches: Iterable[pa.RecordBatch], schema: pa.Schema, folder: Path | None = None) -> pa.Table:
    """Return the rows of the batches, in memory if they are small.

    Large batches go to a temporary file without a name. The system deletes the file when the process ends,
    even by a crash. Raises TableError, with the table's name, if there is no space for them.
    """
    kept: list[pa.RecordBatch] = []
    size, file, writer = 0, None, None
    try:
        for batch in batches:
            kept.append(batch)
            size += batch.nbytes
            if size > MOST_IN_MEMORY:
                if writer is None:
                    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed below; the memory map outlives it
                    writer = pa.ipc.new_file(file, schema)
                while kept:
                    writer.write_batch(kept.pop(0))
        if file is None or writer is None:
            return pa.Table.from_batches(kept, schema)
        with file, writer:
            writer.close()
            file.flush()
            reader = pa.ipc.open_file(pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
    except OSError as error:
        raise TableError(
            f"{name}: there is no space for a copy of its rows in {folder or tempfile.gettempdir()} "
            f"({error.strerror or error}); free some space there"
        ) from None
    return pa.Table.from_batches([reader.get_batch(i) for i in range(reader.num_record_batches)], schema)


# --- cells of SQLite and of spreadsheets: each has a type of its own ---


def as_text_rows(table: object, names: Sequence[str], rows: Iterable[Sequence[object]]) -> pa.Table:
    """Return rows of cells as columns of strings, in memory or in a temporary file. ``table`` is a name for errors."""
    schema = pa.schema(dict.fromkeys(names, pa.string()))

    def batches() -> Iterator[pa.RecordBatch]:
        remaining = iter(rows)
        while pending := list(islice(remaining, BATCH_ROWS)):
            columns = ([as_text(cell) for cell in column] for column in zip(*pending, strict=True))
            yield pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], schema=schema)

    return spool(table, batches(), schema)


def as_text(cell: object) -> str | None:
    """Return a cell as a CSV file would hold it; None for a missing value.

    >>> [as_text(cell) for cell in (True, 0.1, datetime(2024, 12, 31), " a ", "NA", None)]
    ['true', '0.1', '2024-12-31', 'a', None, None]
    """
    if cell is None:
        return None
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, datetime):
        is_day = (cell.hour, cell.minute, cell.second, cell.microsecond, cell.tzinfo) == (0, 0, 0, 0, None)
        return cell.date().isoformat() if is_day else cell.isoformat(" ")
    if isinstance(cell, date):
        return cell.isoformat()
    text = (repr(cell) if isinstance(cell, float) else str(cell)).strip()
    return None if text in MISSING else text
