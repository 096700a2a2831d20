"""Write rows to a file, in the format of its ending, or as CSV to standard output. The file is complete or absent."""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
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

FORMULA = (
    r"=+\-@\t\r\n＝＋－＠"  # first characters of spreadsheet formulas, as a character class of a regular expression
)
NO_NOTATIONS: Mapping[str, Notation] = MappingProxyType({})

Batches = Iterator[pa.RecordBatch]


def _write_csv(
    file: BinaryIO,
    batches: Batches,
    decimals: Mapping[str, int],
    notations: Mapping[str, Notation] = NO_NOTATIONS,
    protect: bool = False,
) -> None:
    def texts() -> Batches:
        for batch in batches:
            names = batch.schema.names
            arrays = [_text(column, decimals.get(name)) for name, column in zip(names, batch.columns, strict=True)]
            for i, name in enumerate(names):
                if name in notations:
                    arrays[i] = notations[name].from_plain(arrays[i].cast(pa.string()))
                elif protect:  # a formatted number, such as -5 €, is not a formula
                    arrays[i] = protected(arrays[i])
            names = protected(pa.array(names)).to_pylist() if protect else names
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    _write_by(arrow_csv.CSVWriter, file, texts())


def csv_text(batches: Batches, decimals: Mapping[str, int], notations: Mapping[str, Notation] = NO_NOTATIONS) -> bytes:
    """Return rows as the bytes of a CSV file.

    >>> csv_text(iter([pa.record_batch({"a": [1, 2]})]), {})
    b'"a"\\n1\\n2\\n'
    """
    file = io.BytesIO()
    _write_csv(file, batches, decimals, notations)
    return file.getvalue()


def _write_parquet(file: BinaryIO, batches: Batches, *_: object) -> None:
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
    return pc.replace_substring_regex(texts, pattern=f"^[{FORMULA}]", replacement=r"'\0")


def _write_npy(file: BinaryIO, batches: Batches, *_: object) -> None:
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


WRITERS: dict[str, Callable[..., None]] = {".csv": _write_csv, ".parquet": _write_parquet, ".npy": _write_npy}


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
    path: str,
    batches: Batches,
    decimals: Mapping[str, int] | None = None,
    *,
    notations: Mapping[str, Notation] = NO_NOTATIONS,
    overwrite: bool = False,
    whole: bool = False,
    protect_formulas: bool = False,
) -> None:
    """Write rows to a file. The file appears once it is complete; after an error there is no file.

    Args:
        path: the name of the file, or ``-`` for CSV on standard output.
        batches: the rows, at least one batch.
        decimals: the number of digits after the point, for columns that a CSV writes with a fixed number.
        notations: the notations of columns that a CSV writes in a notation of their own.
        overwrite: whether to replace an existing file.
        whole: whether standard output gets the rows at the end, all at once, instead of batch by batch.
        protect_formulas: whether texts in a CSV that a spreadsheet would take for formulas get an apostrophe.
    """
    check_output(path, overwrite=overwrite)
    csv_options = decimals or {}, notations, protect_formulas
    if path == STANDARD_OUTPUT and whole:
        with tempfile.TemporaryFile() as buffered:
            _write_csv(buffered, batches, *csv_options)
            buffered.seek(0)
            shutil.copyfileobj(buffered, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    elif path == STANDARD_OUTPUT:
        _write_csv(sys.stdout.buffer, batches, *csv_options)
        sys.stdout.buffer.flush()
    else:
        write_files([(path, batches)], *csv_options)


def write_files(
    outputs: Iterable[tuple[str, Batches]],
    decimals: Mapping[str, int],
    notations: Mapping[str, Notation] = NO_NOTATIONS,
    protect_formulas: bool = False,
) -> None:
    """Write several files, or no file: after an error every name has its old file, or none.

    Args:
        outputs: the names of the files, each with its rows. The rows of a file are asked for after the file before it.
        decimals, notations, protect_formulas: as in :func:`write_rows`.
    """
    with replacing_together() as new_file:
        for path, batches in outputs:
            with new_file(Path(path)) as file:
                WRITERS[Path(path).suffix.lower()](file, batches, decimals, notations, protect_formulas)
