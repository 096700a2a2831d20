"""Parquet files, folders of them that are one table, and tables of numbers in .npy and .npz files."""

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
from cubicflow.tables.source import Table, check_names
from cubicflow.tables.table_error import TableError, some

Array = NDArray[Any]
# a damaged header is handed to Python's own parser, which has errors of its own
UNREADABLE = (
    *(ValueError, TypeError, OSError, EOFError, KeyError, OverflowError, MemoryError, zipfile.BadZipFile),
    *(zlib.error, SyntaxError, tokenize.TokenError, RecursionError),
)


class ParquetTable(Table):
    """A .parquet file, or all .parquet files in a folder (and below it) in the order of their names."""

    def __init__(self, path: Path) -> None:
        files = [path]
        if path.is_dir():
            files = sorted(file for end in ("parquet", "pq") for file in path.rglob(f"*.{end}"))
            if not files:
                raise TableError(f"{path}: this is a folder, and no .parquet file lies in it; give the file itself")
        schema = _schema(files[0])
        for file in files[1:]:
            other = _schema(file)
            if not other.equals(schema):
                raise TableError(
                    f"{path}: the files are not parts of one table: {_difference(files[0], schema, file, other)}"
                )
        check_names(path, schema.names)
        super().__init__(path, dict(zip(schema.names, schema.types, strict=True)))
        self.files = files

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for path in self.files:
            try:
                with parquet.ParquetFile(path) as file:
                    for batch in file.iter_batches(batch_size=rows, columns=columns):
                        batch.validate(full=True)  # a damaged page can decode into values that point nowhere
                        batch = batch.select(columns)
                        yield batch.cast(without_views(batch.schema))
            except (pa.ArrowException, OSError, EOFError) as error:
                raise TableError(_damaged(path, error)) from None


def _schema(path: Path) -> pa.Schema:
    try:
        return without_views(parquet.read_schema(path))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise TableError(_damaged(path, error)) from None


def _damaged(path: Path, error: Exception) -> str:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return f"{path}: not a whole Parquet file: {reason}"


def _difference(first: Path, schema: pa.Schema, file: Path, other: pa.Schema) -> str:
    one, another = first.name, file.name
    lacks = [name for name in schema.names if name not in other.names]
    adds = [name for name in other.names if name not in schema.names]
    if lacks or adds:
        return f"{another} lacks {some(lacks) or 'no column'} and adds {some(adds) or 'none'} compared with {one}"
    for name in schema.names:
        expected, found = schema.field(name).type, other.field(name).type
        if expected != found:
            return f"column {name!r} is {expected} in {one} and {found} in {another}"
    return f"{one} and {another} have their columns in different order"


class NumpyTable(Table):
    """Rows by columns in a .npy file, named x0, x1, ...; a structured array or the arrays of a .npz name their own.

    A .npy file is mapped into memory, not read; the arrays of a .npz are read whole. What a file is, its first bytes
    say, not its name.
    """

    def __init__(self, path: Path) -> None:
        self._columns = _columns(path)
        check_names(path, list(self._columns))
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise TableError(f"{path}: the arrays are columns of different lengths: {lengths}")
        super().__init__(path, {name: _type(path, name, column.dtype) for name, column in self._columns.items()})

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        length = len(next(iter(self._columns.values())))
        for start in range(0, length, rows):
            pieces = [np.ascontiguousarray(self._columns[name][start : start + rows]) for name in columns]
            # byte order is a matter of the file; arrow knows only this machine's
            native = [piece.astype(piece.dtype.newbyteorder("="), copy=False) for piece in pieces]
            arrays = [pa.array(piece, type=self.types[name]) for name, piece in zip(columns, native, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=columns)


def _columns(path: Path) -> dict[str, Array]:
    try:
        arrays = _load(path)
    except UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "allow_pickle" in reason or "Python objects" in reason:
            reason = "it holds Python objects, which are never loaded; save numbers"
        raise TableError(f"{path}: not a readable NumPy file: {reason}") from None
    if not arrays:
        raise TableError(f"{path}: the archive holds no array")
    if len(arrays) == 1:
        return _split(path, next(iter(arrays.values())))
    if others := [name for name, array in arrays.items() if array.ndim != 1]:
        raise TableError(
            f"{path}: of several arrays each is a column, so each must have one dimension; {some(others)} has not. To "
            "use one of them, save it alone"
        )
    return arrays


def _load(path: Path) -> dict[str, Array]:
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # headers that Python 2 wrote are as good
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            return {"x": found}
        with found:
            return dict(found)


def _split(path: Path, array: Array) -> dict[str, Array]:
    if array.dtype.names:
        if array.ndim != 1:
            raise TableError(f"{path}: a structured array should have one dimension, this one has shape {array.shape}")
        return {name: array[name] for name in array.dtype.names}
    if array.ndim == 1:
        return {"x0": array}
    if array.ndim != 2:
        raise TableError(f"{path}: expected rows by columns, got an array of shape {array.shape}")
    if not array.shape[1]:
        raise TableError(f"{path}: the array of shape {array.shape} has no columns")
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
