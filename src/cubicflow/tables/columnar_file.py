"""Readers of Parquet files, of folders of Parquet files, and of .npy and .npz files."""

from __future__ import annotations

import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from cubicflow.tables.arrow_types import without_views
from cubicflow.tables.npy_rows import NpyFile
from cubicflow.tables.source import Table, check_names
from cubicflow.tables.table_error import TableError, some
from cubicflow.tables.unpacking import check_unpacked
from cubicflow.tables.watched_files import WatchedFiles, changed

Array = NDArray[Any]
NUMBER_BYTES = 8  # bytes of a value in memory, at least
# NumPy parses a header as Python source, so a damaged header can raise the errors of Python's parser.
UNREADABLE = (
    *(ValueError, TypeError, OSError, EOFError, KeyError, OverflowError, MemoryError, zipfile.BadZipFile),
    *(zlib.error, SyntaxError, tokenize.TokenError, RecursionError),
)


class ParquetTable(Table):
    """A .parquet file, or all .parquet files in a folder and its subfolders, in the order of their names."""

    def __init__(self, path: Path) -> None:
        watched = WatchedFiles(path, lambda: _parts(path))
        files = _parts(path)
        if not files:
            raise TableError(f"{path}: this folder holds no .parquet file; give the path of a file")
        schema = _schema(files[0])
        for file in files[1:]:
            other = _schema(file)
            if not other.equals(schema):
                reason = difference(files[0].name, schema, file.name, other)
                raise TableError(f"{path}: the files are not parts of one table: {reason}")
        check_names(path, schema.names)
        super().__init__(path, dict(zip(schema.names, schema.types, strict=True)), watched)
        self.files = files

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for path in self.files:
            try:
                packed, unpacked = path.stat().st_size, 0
                with parquet.ParquetFile(path) as file:
                    check_unpacked(path, packed, _announced_bytes(file, columns))
                    for batch in file.iter_batches(batch_size=rows, columns=columns):
                        unpacked += batch.nbytes
                        check_unpacked(path, packed, unpacked)  # the sizes in the metadata may be wrong
                        batch.validate(full=True)  # a damaged page can decode to offsets out of range
                        batch = batch.select(columns)
                        yield batch.cast(without_views(batch.schema))
            except (pa.ArrowException, OSError, EOFError) as error:
                raise TableError(damaged(path, error)) from None


def _parts(path: Path) -> list[Path]:
    """Return the files of a table: the file at the path, or all files of a folder."""
    if not path.is_dir():
        return [path]
    return sorted(file for end in ("parquet", "pq") for file in path.rglob(f"*.{end}"))


def _announced_bytes(file: parquet.ParquetFile, columns: list[str]) -> int:
    """Return the unpacked size of some columns in bytes: the size in the metadata, at least 8 bytes for each value."""
    metadata = file.metadata
    pages = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        parts = (group.column(i) for i in range(group.num_columns))
        pages += sum(part.total_uncompressed_size for part in parts if part.path_in_schema.split(".")[0] in columns)
    return max(int(pages), int(metadata.num_rows) * len(columns) * NUMBER_BYTES)


def _schema(path: Path) -> pa.Schema:
    try:
        return without_views(parquet.read_schema(path))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise TableError(damaged(path, error)) from None


def damaged(path: object, error: Exception) -> str:
    """Return the message for a Parquet file that cannot be read."""
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return f"{path}: not a complete Parquet file: {reason}"


def difference(one: str, schema: pa.Schema, another: str, other: pa.Schema) -> str:
    """Return a phrase that says how the schema of the file ``another`` differs from that of the file ``one``."""
    lacks = [name for name in schema.names if name not in other.names]
    adds = [name for name in other.names if name not in schema.names]
    if lacks or adds:
        return f"{another} lacks {some(lacks) or 'no column'} and adds {some(adds) or 'no column'} compared with {one}"
    for name in schema.names:
        expected, found = schema.field(name).type, other.field(name).type
        if expected != found:
            return f"column {name!r} is {expected} in {one} and {found} in {another}"
    return f"{one} and {another} have the same columns in a different order"


class NumpyTable(Table):
    """A .npy or .npz file.

    The columns of an array are named x0, x1, ... A structured array, or several arrays in a .npz file, have names of
    their own. A .npy file is read a few rows at a time; the arrays of a .npz file are loaded whole. The first bytes of
    a file decide which format it has, not its name.
    """

    def __init__(self, path: Path) -> None:
        watched = WatchedFiles(path, lambda: [path])
        arrays = _arrays(path)
        self._columns = _columns(path, arrays)
        check_names(path, list(self._columns))
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise TableError(
                f"{path}: the arrays are columns, and their lengths differ: {lengths}; save arrays of one length"
            )
        types = {name: _type(path, name, column.dtype) for name, column in self._columns.items()}
        super().__init__(path, types, watched)
        mapped = next(iter(arrays.values()))
        self._file = NpyFile(path, mapped) if isinstance(mapped, np.memmap) else None
        self._digests: dict[str, int] = {}  # checksum of each column in the first pass

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        length = len(next(iter(self._columns.values())))
        digests = dict.fromkeys(columns, 0)
        for start in range(0, length, rows):
            if self._file is None:
                found = {name: column[start : start + rows] for name, column in self._columns.items()}
            else:
                found = _split(self.path, self._file.rows(start, start + rows))
            pieces = [np.ascontiguousarray(found[name]) for name in columns]
            digests = {
                name: zlib.crc32(piece.tobytes(), digests[name]) for name, piece in zip(columns, pieces, strict=True)
            }
            # Arrow supports only the native byte order.
            native = [piece.astype(piece.dtype.newbyteorder("="), copy=False) for piece in pieces]
            arrays = [pa.array(piece, type=self.types[name]) for name, piece in zip(columns, native, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=columns)
        # A program that has mapped the file can write to it without changing its modification time.
        if any(self._digests.setdefault(name, digest) != digest for name, digest in digests.items()):
            raise changed(self.path)


def _arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of a file by name: in memory for a .npz file, memory-mapped for a .npy file."""
    try:
        arrays = _load(path)
    except TableError:
        raise
    except UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "allow_pickle" in reason or "Python objects" in reason:
            reason = "it holds Python objects, which cubicflow never loads; save numbers"
        raise TableError(f"{path}: not a readable NumPy file: {reason}") from None
    if not arrays:
        raise TableError(f"{path}: the archive holds no array; save at least one array in it")
    return arrays


def _columns(path: Path, arrays: dict[str, Array]) -> dict[str, Array]:
    if len(arrays) == 1:
        return _split(path, next(iter(arrays.values())))
    if others := [name for name, array in arrays.items() if array.ndim != 1]:
        raise TableError(
            f"{path}: several arrays are columns and must have one dimension each; {some(others)} is different. "
            "To use a single array, save it alone"
        )
    return arrays


def _load(path: Path) -> dict[str, Array]:
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # from NumPy, for headers of Python 2
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            return {"x": found}
        with found:
            members = [] if found.zip is None else found.zip.infolist()
            check_unpacked(path, path.stat().st_size, sum(member.file_size for member in members))
            return dict(found)


def _split(path: Path, array: Array) -> dict[str, Array]:
    if array.dtype.names:
        if array.ndim != 1:
            raise TableError(
                f"{path}: a structured array should have one dimension, got shape {array.shape}; flatten it"
            )
        return {name: array[name] for name in array.dtype.names}
    if array.ndim == 1:
        return {"x0": array}
    if array.ndim != 2:
        raise TableError(f"{path}: expected an array (rows, columns), got shape {array.shape}; reshape it")
    if not array.shape[1]:
        raise TableError(f"{path}: the array of shape {array.shape} has no columns; save at least one column")
    return {f"x{i}": array[:, i] for i in range(array.shape[1])}


def _type(path: Path, name: str, dtype: np.dtype[Any]) -> pa.DataType:
    if dtype.kind == "f" and dtype.itemsize > 8:
        raise TableError(f"{path}: column {name!r} is {dtype}; save it as float64")
    if dtype.kind in "biufM" and dtype != np.dtype("M8"):
        with suppress(pa.ArrowException, ValueError, TypeError):
            return pa.from_numpy_dtype(dtype.newbyteorder("="))
    if dtype.kind == "U":
        return pa.string()
    raise TableError(f"{path}: column {name!r} holds {dtype}, expected numbers, booleans, dates or text")
