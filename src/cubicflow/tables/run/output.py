"""Write rows to a file, in the format of its ending, or as CSV to standard output. The file is complete or absent."""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from cubicflow.files import check_free, replacing_together
from cubicflow.tables.read.text.notations import Notation
from cubicflow.tables.table_error import TableError, some

STANDARD_OUTPUT = "-"
MOST_DIGITS = 38  # digits of a decimal128
NUMERIC = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)  # types that a .npy file can hold

FORMULA = r"^[=+\-@\t\r\n＝＋－＠]"  # the first character of a spreadsheet formula

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class CsvStyle:
    """How a CSV file writes values. Other formats hold the values themselves.

    Attributes:
        decimals: the number of digits after the point, for columns with a fixed number.
        notations: the notations of columns that are not written plainly.
        protect_formulas: whether texts that a spreadsheet would take for formulas get an apostrophe.
    """

    decimals: Mapping[str, int] = field(default_factory=dict)
    notations: Mapping[str, Notation] = field(default_factory=dict)
    protect_formulas: bool = False

    def write(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows as the file holds them."""
        arrays = [self._column(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
        names = pa.array(batch.schema.names)
        names = protected(names) if self.protect_formulas else names
        return pa.RecordBatch.from_arrays(arrays, names=names.to_pylist())

    def _column(self, name: str, column: pa.Array) -> pa.Array:
        text = _text(column, self.decimals.get(name))
        if name in self.notations:  # a number such as -5 € is not a formula
            return self.notations[name].from_plain(text.cast(pa.string()))
        return protected(text) if self.protect_formulas else text


PLAIN = CsvStyle()


def csv_text(batches: Batches, style: CsvStyle = PLAIN) -> bytes:
    """Return rows as the bytes of a CSV file.

    >>> csv_text(iter([pa.record_batch({"a": [1, 2]})]))
    b'"a"\\n1\\n2\\n'
    """
    file = io.BytesIO()
    _write_csv(file, batches, style)
    return file.getvalue()


def _write_csv(file: BinaryIO, batches: Batches, style: CsvStyle) -> None:
    _write_by(arrow_csv.CSVWriter, file, map(style.write, batches))


def _write_parquet(file: BinaryIO, batches: Batches, _: CsvStyle) -> None:
    _write_by(parquet.ParquetWriter, file, batches)


def _write_by(start: Callable[..., Any], file: BinaryIO, batches: Batches) -> None:
    """Write batches with an Arrow writer, which needs the schema of the first batch."""
    first = next(batches)
    with start(file, first.schema) as writer:
        for batch in chain([first], batches):
            writer.write_batch(batch)


def _text(column: pa.Array, digits: int | None) -> pa.Array:
    """Return a column as CSV writes it, floats with ``digits`` digits after the point."""
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    if digits is None or not pa.types.is_floating(column.type):
        return column
    try:
        # Keep at least one digit, as in 55.0, so that readers recognise a float column.
        return pc.cast(column.cast(pa.float64()), pa.decimal128(MOST_DIGITS, max(digits, 1)))
    except pa.ArrowInvalid:  # a value is too large for a decimal with these digits
        return column


def protected(texts: pa.Array) -> pa.Array:
    """Return texts with an apostrophe before those that a spreadsheet would take for formulas. Numbers are unchanged.

    >>> protected(pa.array(["=1+1", "a=b", "@x", None])).to_pylist()
    ["'=1+1", 'a=b', "'@x", None]
    """
    if not pa.types.is_string(texts.type) and not pa.types.is_large_string(texts.type):
        return texts
    return pc.replace_substring_regex(texts, pattern=FORMULA, replacement=r"'\0")


def _write_npy(file: BinaryIO, batches: Batches, _: CsvStyle) -> None:
    """Write one column as (N,), several as (N, D), all in one dtype.

    The header is rewritten once the rows are counted; NumPy pads headers for this purpose.
    """
    rows, width, dtype = 0, 1, np.dtype(np.float64)

    def write_header() -> None:
        shape = (rows,) if width == 1 else (rows, width)
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        file.seek(0)
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()

    for batch in batches:
        not_numeric = [field.name for field in batch.schema if not any(holds(field.type) for holds in NUMERIC)]
        if not_numeric:
            raise TableError(
                f"a .npy file holds numbers, but {some(not_numeric)} is not numeric; write .csv or .parquet"
            )
        columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
        if not rows:
            width, dtype = len(columns), np.result_type(*columns)
            write_header()
        np.ascontiguousarray(np.stack(columns, axis=1), dtype=dtype).tofile(file)
        rows += len(batch)
    write_header()


WRITERS: dict[str, Callable[[BinaryIO, Batches, CsvStyle], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".npy": _write_npy,
}


def check_output(path: str, *, overwrite: bool = False) -> None:
    """Raise TableError or OutputError for an output that cannot be written, before any work is done."""
    if path == STANDARD_OUTPUT:
        if sys.stdout is None:  # standard output was closed before Python started
            raise TableError("standard output is closed; open it, or give the name of a file")
        return
    check_file(path, tuple(WRITERS), overwrite=overwrite)


def check_file(path: str, endings: Sequence[str], *, overwrite: bool) -> None:
    """Raise TableError if the name of a file has none of these endings, and OutputError if it cannot be written."""
    target = Path(path)
    if target.suffix.lower() not in endings:
        *others, last = endings
        ends = f"{', '.join(others)} or {last}" if others else last
        raise TableError(f"{path}: the name of an output should end in {ends}, or be - for standard output")
    check_free(target, overwrite=overwrite)


def is_own(run: Path, name: str, output: Path) -> bool:
    """Return whether an output is the file or folder ``name`` of a run folder, which a later command may replace.

    >>> is_own(Path("runs/a"), "plots", Path("runs/../runs/a/plots")), is_own(Path("runs/a"), "plots", Path("plots"))
    (True, False)
    """
    return output.name == name and output.parent.resolve() == run.resolve()


def write_rows(
    path: str, batches: Batches, style: CsvStyle = PLAIN, *, overwrite: bool = False, whole: bool = False
) -> None:
    """Write rows to a file. The file appears once it is complete; after an error there is no file.

    Args:
        path: the name of the file, or ``-`` for CSV on standard output.
        batches: the rows, at least one batch.
        style: how a CSV is written.
        overwrite: whether to replace an existing file.
        whole: whether standard output gets the rows at the end, all at once, instead of batch by batch.
    """
    check_output(path, overwrite=overwrite)
    if path != STANDARD_OUTPUT:
        write_files([(path, batches)], style)
        return
    if whole:
        with tempfile.TemporaryFile() as buffered:
            _write_csv(buffered, batches, style)
            buffered.seek(0)
            shutil.copyfileobj(buffered, sys.stdout.buffer)
    else:
        _write_csv(sys.stdout.buffer, batches, style)
    sys.stdout.buffer.flush()


def write_files(outputs: Iterable[tuple[str, Batches]], style: CsvStyle = PLAIN) -> None:
    """Write several files, or no file: after an error every name has its old file, or none.

    Args:
        outputs: the names of the files, each with its rows. The rows of a file are asked for after the file before it.
        style: how a CSV is written.
    """
    with replacing_together() as new_file:
        for path, batches in outputs:
            with new_file(Path(path)) as file:
                WRITERS[Path(path).suffix.lower()](file, batches, style)
