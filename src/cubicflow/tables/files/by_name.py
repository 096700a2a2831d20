"""Opening a table by the ending of its file name."""

from __future__ import annotations

from pathlib import Path

from cubicflow.data.built_in import BUILT_IN, built_in_table
from cubicflow.tables.columnar_file import NumpyTable, ParquetTable
from cubicflow.tables.csv_file import CsvTable
from cubicflow.tables.files.arrow_file import ArrowTable
from cubicflow.tables.files.json_lines import JsonLinesTable
from cubicflow.tables.files.spreadsheet import SpreadsheetTable
from cubicflow.tables.source import Table
from cubicflow.tables.table_error import TableError
from cubicflow.tables.text.reading import Reading


def open_file(path: Path, reading: Reading) -> Table:
    """Return the table in a file or a folder, or the built-in table of that name. The ending gives the format."""
    if not path.exists() and str(path) in BUILT_IN:
        path = built_in_table(str(path))
    if not path.exists():
        raise TableError(
            f"{path}: there is no such file, and no built-in table of that name ({', '.join(BUILT_IN)}); check the path"
        )
    if path.is_dir():
        return ParquetTable(path)
    if not path.is_file():
        raise TableError(
            f"{path}: a table is read several times, and a pipe only once; save it as a file first, or send it to "
            "standard input and give - as its name"
        )
    if path.stat().st_size == 0:
        raise TableError(f"{path}: the file is empty; give a file that holds a table")
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    match suffix.lower():
        case ".csv" | ".tsv":
            return CsvTable(path, reading)
        case ".jsonl" | ".ndjson":
            return JsonLinesTable(path)
        case ".parquet" | ".pq" if path.suffix != ".gz":
            return ParquetTable(path)
        case ".feather" | ".arrow" | ".arrows" | ".ipc" if path.suffix != ".gz":
            return ArrowTable(path)
        case ".xlsx" | ".xlsm" if path.suffix != ".gz":
            return SpreadsheetTable(path, reading)
        case ".npy" | ".npz" if path.suffix != ".gz":
            return NumpyTable(path)
        case ".db" | ".sqlite" | ".sqlite3" | ".duckdb" if path.suffix != ".gz":
            scheme = "duckdb" if suffix == ".duckdb" else "sqlite"
            raise TableError(f"{path}: a database needs a query: {scheme}:{path}?query=SELECT ...")
    raise TableError(
        f"{path}: unknown kind of table; the name of a table ends in .csv, .tsv, .jsonl (also .gz), "
        ".parquet, .feather, .arrow, .xlsx, .npy or .npz, or is a folder of .parquet files"
    )
