"""Rows to a file of the kind its name says, or as CSV to standard output; complete under its name, or not there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from cubicflow.atomic_files import replacing
from cubicflow.tables.table_error import TableError, some

STANDARD_OUTPUT = "-"
MOST_DIGITS = 38  # of arrow's decimals
NUMERIC = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)  # for NumPy


class ArrowWriter:
    """Batches of the same columns to a CSV or Parquet file. ``start`` makes arrow's writer when the first has come."""

    def __init__(self, file: BinaryIO, start: Callable[..., Any]) -> None:
        self.file, self.start = file, start
        self.writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self.writer is None:
            self.writer = self.start(self.file, batch.schema)
        self.writer.write_batch(batch)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class CsvWriter(ArrowWriter):
    """``decimals`` names columns that are written with a fixed number of digits after the point."""

    def __init__(self, file: BinaryIO, decimals: Mapping[str, int]) -> None:
        super().__init__(file, arrow_csv.CSVWriter)
        self.decimals = decimals

    def write(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        arrays = [_text(column, self.decimals.get(name)) for name, column in zip(names, batch.columns, strict=True)]
        super().write(pa.RecordBatch.from_arrays(arrays, names=names))


def _text(column: pa.Array, digits: int | None) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    if digits is None or not pa.types.is_floating(column.type):
        return column
    try:
        # a float column keeps its point, so that readers take it for one: 55.0
        return pc.cast(column.cast(pa.float64()), pa.decimal128(MOST_DIGITS, max(digits, 1)))
    except pa.ArrowInvalid:  # too large for so many digits
        return column


class NpyWriter:
    """One column as (N,), several as (N, D), all in one dtype. The header is written again when the rows are counted;
    NumPy pads it for that."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.rows = 0
        self.width = 1
        self.dtype: np.dtype[Any] = np.dtype(np.float64)

    def write(self, batch: pa.RecordBatch) -> None:
        wordy = [field.name for field in batch.schema if not any(holds(field.type) for holds in NUMERIC)]
        if wordy:
            raise TableError(f"a .npy file holds numbers, and {some(wordy)} are not; write .csv or .parquet")
        columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
        if not self.rows:
            self.width, self.dtype = len(columns), np.result_type(*columns)
            self._header()
        np.ascontiguousarray(np.stack(columns, axis=1), dtype=self.dtype).tofile(self.file)
        self.rows += len(batch)

    def _header(self) -> None:
        shape = (self.rows,) if self.width == 1 else (self.rows, self.width)
        described = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        self.file.seek(0)
        np.lib.format.write_array_header_1_0(self.file, described)
        self.file.flush()

    def close(self) -> None:
        self._header()


Writer = ArrowWriter | NpyWriter
WRITERS: dict[str, Callable[[BinaryIO, Mapping[str, int]], Writer]] = {
    ".csv": CsvWriter,
    ".parquet": lambda file, _: ArrowWriter(file, parquet.ParquetWriter),
    ".npy": lambda file, _: NpyWriter(file),
}


def check_output(path: str, *, overwrite: bool = False) -> None:
    """Refuse an output that cannot be written, before any work is done for it."""
    if path == STANDARD_OUTPUT:
        if sys.stdout is None:  # Python's word for one that was closed before it began
            raise TableError("standard output is closed; open it, or give the name of a file")
        return
    target = Path(path)
    if target.suffix.lower() not in WRITERS:
        raise TableError(f"{path}: the name of an output ends in .csv, .parquet or .npy, or is - for standard output")
    if target.is_dir():
        raise TableError(f"{path}: this is a folder; give the name of a file")
    if target.exists() and not overwrite:
        raise TableError(f"{path}: there is such a file already; choose another name, or replace it", "--overwrite")
    if not target.parent.is_dir():
        raise TableError(f"{path}: there is no folder {target.parent}; make it first")


@contextmanager
def open_output(path: str, decimals: Mapping[str, int] | None = None, *, overwrite: bool = False) -> Iterator[Writer]:
    """A writer for the path. The file appears under its name when all is written; after an error there is none."""
    check_output(path, overwrite=overwrite)
    if path == STANDARD_OUTPUT:
        writer: Writer = CsvWriter(sys.stdout.buffer, decimals or {})
        yield writer
        writer.close()
        sys.stdout.buffer.flush()
        return
    target = Path(path)
    with replacing(target) as file:
        writer = WRITERS[target.suffix.lower()](file, decimals or {})
        yield writer
        writer.close()
