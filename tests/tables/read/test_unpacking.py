"""Decompression bombs: compressed tables that expand far beyond their size."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cubicflow.tables import TableError, open_table

ROWS = 400_000


def write(path: Path) -> Path:
    """Write a file of a few kilobytes that expands to megabytes."""
    zeros = np.zeros(ROWS)
    match path.suffix:
        case ".gz":
            path.write_bytes(gzip.compress(b"a,b\n" + b"0.000000,0.000000\n" * ROWS))
        case ".npz":
            np.savez_compressed(path, a=zeros, b=zeros)
        case ".parquet":
            pq.write_table(pa.table({"a": zeros, "b": zeros}), path, compression="zstd")
    return path


@pytest.mark.parametrize("name", ["t.csv.gz", "t.npz", "t.parquet"])
def test_decompression_bombs_are_refused_unless_the_ratio_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = write(tmp_path / name)
    assert sum(map(len, open_table(path).batches())) == ROWS  # below the size that is always allowed
    monkeypatch.setattr("cubicflow.tables.read.file_checks.FREE_BYTES", 1 << 20)
    said = (
        rf"t\.{path.suffix[1:] if path.suffix != '.gz' else 'csv.gz'}: [\d,]+ bytes unpack to [\d,]+ or more, over 200 "
    )
    with pytest.raises(TableError, match=said + r"times as many; if that is right, set .* CUBICFLOW_UNPACK_RATIO"):
        _ = list(open_table(path).batches())
    monkeypatch.setenv("CUBICFLOW_UNPACK_RATIO", "1e6")
    assert sum(map(len, open_table(path).batches())) == ROWS


def test_runs_of_one_value_that_expand_too_far_are_refused(tmp_path: Path) -> None:
    """Run-length encoding alone expands some kilobytes to 800 MB."""
    rows = 10**5
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array(["x"]))
    with pq.ParquetWriter(tmp_path / "t.parquet", pa.schema({"a": column.type})) as writer:
        for _ in range(200):
            writer.write_table(pa.table({"a": column}))
    assert (tmp_path / "t.parquet").stat().st_size < 100_000
    with pytest.raises(TableError, match=r"unpack to 160,000,000 or more"):
        next(open_table(tmp_path / "t.parquet").batches())


def test_a_false_member_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most the size that an archive states for a member is read."""
    path = write(tmp_path / "t.npz")
    monkeypatch.setattr("cubicflow.tables.read.file_checks.FREE_BYTES", 1 << 20)
    with zipfile.ZipFile(path) as archive:
        sizes = [member.file_size for member in archive.infolist()]
    content = path.read_bytes()
    for size in set(sizes):
        content = content.replace(size.to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    path.write_bytes(content)
    with pytest.raises(TableError, match="not a readable NumPy file"):
        open_table(path)


@pytest.mark.parametrize("ratio", ["much", "0", "-3", "nan", "inf"])
def test_invalid_ratios_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ratio: str) -> None:
    monkeypatch.setenv("CUBICFLOW_UNPACK_RATIO", ratio)
    with pytest.raises(TableError, match=f"CUBICFLOW_UNPACK_RATIO should be a number from 1 to 1e9, got '{ratio}'"):
        _ = list(open_table(write(tmp_path / "t.csv.gz")).batches())
