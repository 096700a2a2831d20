"""A table in a file: column names, types, and batches of rows, never the whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from cubicflow.data.built_in import BUILT_IN, built_in_table
from cubicflow.tables.errors import TableError, some

BATCH_ROWS = 1 << 16
ROW_INDEX = r"__index_level_\d+__"  # pandas' name, in Parquet files, for an index that has none


class Table(ABC):
    """A table on disk that can be read any number of times, a batch of rows at a time.

    ``types`` holds the arrow type of every column. In a file of text (``is_text``) every column is a string until
    someone decides otherwise.
    """

    is_text = False

    def __init__(self, path: Path, types: dict[str, pa.DataType]) -> None:
        self.path = path
        self.types = types

    @property
    def names(self) -> list[str]:
        return list(self.types)

    @abstractmethod
    def batches(self, columns: Sequence[str] | None = None, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The table from top to bottom; the named columns, or all."""

    @property
    def files(self) -> list[Path]:
        """The files it is made of."""
        return [self.path]


def open_table(path: str | Path) -> Table:
    """The table at a path: .csv, .tsv (also .gz), .parquet, a folder of .parquet files, .npy or .npz; or a built-in
    one by its name."""
    from cubicflow.tables.csv_file import CsvTable
    from cubicflow.tables.numpy_file import NumpyTable
    from cubicflow.tables.parquet_file import ParquetTable

    path = Path(path)
    if not path.exists() and str(path) in BUILT_IN:
        path = built_in_table(str(path))
    if not path.exists():
        raise TableError(f"{path}: there is no such file, and no built-in table of that name ({', '.join(BUILT_IN)})")
    if path.is_dir():
        return ParquetTable(path)
    if not path.is_file():
        raise TableError(f"{path}: a table is read several times, and a pipe only once; save it as a file first")
    if path.stat().st_size == 0:
        raise TableError(f"{path}: the file is empty")
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    match suffix.lower():
        case ".csv" | ".tsv":
            return CsvTable(path)
        case ".parquet" | ".pq" if path.suffix != ".gz":
            return ParquetTable(path)
        case ".npy" | ".npz" if path.suffix != ".gz":
            return NumpyTable(path)
    raise TableError(
        f"{path}: cannot tell what kind of table this is; a table's name ends in .csv, .tsv, .csv.gz, .tsv.gz, "
        ".parquet, .npy or .npz, or is a folder of .parquet files"
    )


def check_names(path: Path, names: Sequence[str]) -> None:
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
