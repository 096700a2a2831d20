"""A fit reads a file once. Batches that are read again come from a copy."""

from __future__ import annotations

import gzip
import hashlib
import io
import sqlite3
import sys
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json

from cubicflow.tables import TableError, TableOptions, fit_table, infer, open_table

LINES = [f"{i % 7},{i / 8},{'ab'[i % 2]}{i % 3}\n" for i in range(400)]
TEXT = "n,x,word\n" + "".join(LINES)


def write(folder: Path, content: bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
    return path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count how often each file is opened, and how often a CSV is parsed."""
    counts: dict[str, int] = {}
    original, parse = Path.open, arrow_csv.read_csv

    def count(path: Path, *args: Any, **options: Any) -> Any:
        counts[path.name] = counts.get(path.name, 0) + 1
        return original(path, *args, **options)

    def count_parses(source: Any, *options: Any) -> Any:
        assert not isinstance(source, str | Path)  # arrow would open a path itself
        counts["parsed"] = counts.get("parsed", 0) + 1  # once for each block
        return parse(source, *options)

    monkeypatch.setattr(Path, "open", count)
    monkeypatch.setattr(arrow_csv, "read_csv", count_parses)
    return counts


def test_a_fit_reads_a_csv_once(tmp_path: Path, opened: dict[str, int]) -> None:
    """The file is opened for its first lines, for its rows, and for the blocks of its fingerprint."""
    path = write(tmp_path, TEXT.encode())
    opened.clear()
    fit_table(
        path,
        tmp_path / "run",
        TableOptions(context=("word",)),
        model="flow",
        settings={"num_layers": 1, "hidden_features": 4},
        steps=2,
        progress=False,
    )
    assert opened["parsed"] == 1
    assert opened["t.csv"] == 3


@pytest.mark.parametrize("kind", ["xlsx", "jsonl", "sqlite", "duckdb", "stdin"])
def test_a_fit_reads_other_kinds_once(
    tmp_path: Path, opened: dict[str, int], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The test counts the calls of each reader."""
    frame = pd.read_csv(io.StringIO(TEXT))
    path, where = tmp_path / f"t.{kind}", str(tmp_path / f"t.{kind}")
    if kind == "xlsx":
        frame.to_excel(path, index=False)
    elif kind == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif kind == "sqlite":
        with sqlite3.connect(path) as database:
            frame.to_sql("t", database, index=False)
        database.close()
        where = f"sqlite:{path}?query=SELECT * FROM t"
    elif kind == "duckdb":
        with duckdb.connect(str(path)) as database:
            database.execute("CREATE TABLE t AS SELECT * FROM frame")
        where = f"duckdb:{path}?query=SELECT * FROM t"
    else:
        where = "-"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    counts: dict[str, int] = {}

    def count(reader: str, original: Any, *args: Any, **how: Any) -> Any:
        counts[reader] = counts.get(reader, 0) + 1
        return original(*args, **how)

    for module, name in (
        (openpyxl, "load_workbook"),
        (arrow_json, "read_json"),
        (sqlite3, "connect"),
        (duckdb, "connect"),
    ):
        monkeypatch.setattr(module, name, partial(count, module.__name__, getattr(module, name)))
    opened.clear()
    small: dict[str, Any] = {"model": "flow", "settings": {"num_layers": 1, "hidden_features": 4}, "steps": 2}
    fit_table(where, tmp_path / "run", TableOptions(context=("word",)), **small, progress=False)
    reader = {"xlsx": "openpyxl", "jsonl": "pyarrow.json", "sqlite": "sqlite3", "duckdb": "duckdb"}.get(kind)
    assert counts == ({} if reader is None else {reader: 1})
    assert opened.get("parsed", 0) == (kind == "stdin")


def blocks_by_definition(path: Path) -> str:
    """Return the digest of the size and of 64 evenly spaced blocks of 64 KiB, or of a whole smaller file."""
    content = path.read_bytes()
    digest = hashlib.sha256(len(content).to_bytes(8, "big"))
    if len(content) <= 1 << 22:
        digest.update(content)
    else:
        for i in range(64):
            start = (len(content) - (1 << 16)) * i // 63
            digest.update(content[start : start + (1 << 16)])
    return digest.hexdigest()


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
@pytest.mark.parametrize("size", [2000, 1 << 22, (1 << 22) + 1, 9_000_001])
def test_the_fingerprint_comes_with_the_rows(tmp_path: Path, opened: dict[str, int], name: str, size: int) -> None:
    noise = np.random.default_rng(0).integers(0, 10**9, size // 8)  # does not compress, so that .gz files are large too
    written = io.BytesIO()
    arrow_csv.write_csv(pa.table({"n": noise, "word": noise % 7}), written)
    path = write(tmp_path, written.getvalue()[: size - 1].rpartition(b"\n")[0].ljust(size - 1) + b"\n", name)
    table = open_table(path).spooled(["word"])
    before = dict(opened)
    found = table.fingerprint()
    assert opened == before
    assert found == blocks_by_definition(path)
    assert open_table(path).fingerprint() == table.fingerprint()
    if not name.endswith(".gz"):
        assert path.stat().st_size == size


def test_a_spool_in_a_file_equals_one_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, TEXT.encode())
    kept = infer(open_table(path), spool=tmp_path)
    monkeypatch.setattr("cubicflow.tables.read.table.MOST_IN_MEMORY", 0)
    monkeypatch.setattr("cubicflow.tables.read.text.lines.BLOCK_BYTES", 512)  # gives several batches
    spooled = infer(open_table(path), spool=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]
    assert [c.kind for c in spooled.schema.columns] == [c.kind for c in kept.schema.columns]
    path.unlink()  # the file is not opened again
    first, second = (pa.Table.from_batches(found.table.batches(["word", "n"])) for found in (kept, spooled))
    assert first.combine_chunks().equals(second.combine_chunks())
    assert first.num_rows == len(LINES)
    assert second.column("n").num_chunks > 1


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**options: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cubicflow.tables.read.table.MOST_IN_MEMORY", 0)
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(
        TableError, match=r"no space for a copy of its rows in .* \(No space left on device\); free some space there"
    ):
        infer(open_table(write(tmp_path, TEXT.encode())), spool=tmp_path)


def test_values_of_dropped_columns_are_never_read(tmp_path: Path) -> None:
    path = write(tmp_path, b"a,note\n" + b"".join(b"%d,caf\xe9\n" % i for i in range(40)))
    with pytest.raises(TableError, match="not in UTF-8"):
        infer(open_table(path))
    assert infer(open_table(path), TableOptions(drop=("note",))).schema["a"].kind == "integer"


def test_a_spool_has_the_columns_that_it_can_read(tmp_path: Path) -> None:
    table = open_table(write(tmp_path, TEXT.encode())).spooled(["word", "n"])
    assert table.names == ["word", "n"]
    assert pa.Table.from_batches(table.batches()).column_names == ["word", "n"]
