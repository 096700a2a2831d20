"""Reading of Parquet files with checks, in the one module that opens them."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cubicflow
from cubicflow.data import parquet_files
from cubicflow.data.parquet_rows import ParquetRows

SOURCE = Path(cubicflow.__file__).parent


def test_no_other_module_opens_parquet_files() -> None:
    opens = re.compile(r"^(?! *(>>>|[.]{3})).*\b(ParquetFile|read_table|read_schema|ParquetDataset)\(", re.MULTILINE)
    found = [path.name for path in SOURCE.rglob("*.py") if opens.search(path.read_text())]
    assert found == ["parquet_files.py"]


class RefusedError(ValueError):
    pass


def test_damage_that_shows_late_is_an_error_of_the_given_class(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": list(range(10_000))}), path, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[4:40] = b"\xff" * 36  # the header of the first page; the footer is whole
    path.write_bytes(content)

    def read() -> None:
        with parquet_files.opened(path, "the file", RefusedError) as file:
            assert file.metadata.num_rows == 10_000
            _ = list(parquet_files.checked_batches(file, ["a"], 100))

    with pytest.raises(RefusedError, match="the file: not a complete Parquet file: "):
        read()
    with pytest.raises(ValueError, match="not a complete Parquet file"):
        _ = list(ParquetRows(path).in_order(100))


def test_a_folder_is_searched_below_and_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("c.parquet", "b/1.pq", "a.parquet", "x.csv"):
        pq.write_table(pa.table({"a": [float(len(name))]}), tmp_path / name)
    assert [file.relative_to(tmp_path).as_posix() for file in parquet_files.files_in(tmp_path)] == [
        "a.parquet",
        "b/1.pq",
        "c.parquet",
    ]
    assert next(ParquetRows(tmp_path).in_order(9)).x[:, 0].tolist() == [9.0, 6.0, 9.0]
