"""Readers of .npy and .npz files."""

from __future__ import annotations

import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.read.file_checks import changed, check_unpacked
from cubicflow.tables.read.table import Origin, Table, check_names
from cubicflow.tables.table_error import TableError, one_line, some

Array = NDArray[Any]
# NumPy parses a header as Python source, so a damaged header can raise the errors of Python's parser.
UNREADABLE = (
    *(ValueError, TypeError, OSError, EOFError, KeyError, OverflowError, MemoryError, zipfile.BadZipFile),
    *(zlib.error, SyntaxError, tokenize.TokenError, RecursionError),
)


def numpy_table(path: Path) -> Table:
    """Return the table in a .npy or .npz file.

    The columns of an array are named x0, x1, ... A structured array, or several arrays in a .npz file, have names of
    their own. A .npy file is read a few rows at a time; the arrays of a .npz file are loaded whole. The first bytes of
    a file decide which format it has, not its name.
    """
    origin = Origin.of(path)
    arrays = _arrays(path)
    columns = _columns(path, arrays)
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise TableError(
            f"{path}: the arrays are columns, and their lengths differ: {lengths}; save arrays of one length"
        )
    types = {name: _type(path, name, column.dtype) for name, column in columns.items()}
    check_names(path, list(types))
    (length,), first_pass = set(lengths.values()), dict[str, int]()
    whole = next(iter(arrays.values()))
    rows_of_npy = _rows_of_npy(path, whole) if isinstance(whole, np.memmap) else None

    def part(start: int, stop: int) -> dict[str, Array]:
        if rows_of_npy is not None:
            return _columns(path, {"x": rows_of_npy(start, stop)})
        return {name: column[start:stop] for name, column in columns.items()}

    def read(names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        checksums = dict.fromkeys(names, 0)
        for start in range(0, length, rows):
            found = part(start, min(start + rows, length))
            pieces = {name: np.ascontiguousarray(found[name]) for name in names}
            checksums = {name: zlib.crc32(piece.tobytes(), checksums[name]) for name, piece in pieces.items()}
            # Arrow supports only the native byte order.
            native = {name: piece.astype(piece.dtype.newbyteorder("="), copy=False) for name, piece in pieces.items()}
            yield pa.record_batch([pa.array(piece, types[name]) for name, piece in native.items()], names=names)
        # A program that has mapped the file can write to it without changing its modification time.
        if any(first_pass.setdefault(name, checksum) != checksum for name, checksum in checksums.items()):
            raise changed(path)

    return Table(str(path), types, read, origin)


def _arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of a file by name: in memory for a .npz file, memory-mapped for a .npy file."""
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # from NumPy, for headers of Python 2
            found = np.load(path, mmap_mode="r", allow_pickle=False)
            if not isinstance(found, np.lib.npyio.NpzFile):
                return {"x": found}
            with found:
                members = [] if found.zip is None else found.zip.infolist()
                check_unpacked(path, path.stat().st_size, sum(member.file_size for member in members))
                arrays = dict(found)
    except TableError:
        raise
    except UNREADABLE as error:
        reason = one_line(error)
        if "allow_pickle" in reason or "Python objects" in reason:
            reason = "it holds Python objects, which cubicflow never loads; save numbers"
        raise TableError(f"{path}: not a readable NumPy file: {reason}") from None
    if not arrays:
        raise TableError(f"{path}: the archive holds no array; save at least one array in it")
    return arrays


def _rows_of_npy(path: Path, mapped: np.memmap[Any, Any]) -> Callable[[int, int], Array]:
    """Return a function that reads the rows of a .npy file from a first one up to, but not including, a last one.

    It does not read the memory map, which would crash the process if another program truncated the file.
    """
    shape, dtype, begin = mapped.shape, mapped.dtype, mapped.offset
    is_by_columns = mapped.ndim > 1 and mapped.flags.f_contiguous and not mapped.flags.c_contiguous
    width = int(np.prod(shape[1:]))

    def values(first: int, count: int) -> Array:
        try:
            found: Array = np.fromfile(path, dtype, count, offset=begin + first * dtype.itemsize)
        except OSError:
            raise changed(path) from None
        if len(found) < count:
            raise changed(path)
        return found

    def rows(start: int, stop: int) -> Array:
        if not is_by_columns:
            return values(start * width, (stop - start) * width).reshape((stop - start, *shape[1:]))
        return np.stack([values(i * shape[0] + start, stop - start) for i in range(width)], axis=1)

    return rows


def _columns(path: Path, arrays: dict[str, Array]) -> dict[str, Array]:
    if len(arrays) > 1:
        if others := [name for name, array in arrays.items() if array.ndim != 1]:
            raise TableError(
                f"{path}: several arrays are columns and must have one dimension each; {some(others)} is different. "
                "To use a single array, save it alone"
            )
        return arrays
    (array,) = arrays.values()
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
