"""Every kind of file and every source gives the same rows as a CSV file, and is read once."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from tests.helpers.options import message_with_options

from cubicflow.tables import Reading, TableError, TableOptions, infer, open_table
from cubicflow.tables.read.fetched import ending_of

ROWS = 60
DATA = {
    "word": ["ash", "oak", "elm"] * (ROWS // 3),
    "count": [int(i) for i in np.random.default_rng(0).integers(0, 9, ROWS)],
    "size": [i / 4 for i in range(ROWS)],
    "day": [f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(ROWS)],
    "known": [i % 5 == 0 for i in range(ROWS)],
}
FRAME = pd.DataFrame(DATA)
TYPED = pa.table({**DATA, "day": pa.array(DATA["day"]).cast(pa.date32())})


def refusal(path: Any, reading: Reading | None = None, **options: Any) -> str:
    with pytest.raises(TableError) as error:
        infer(open_table(path, reading), TableOptions(**options))
    assert "\n" not in str(error.value)
    return message_with_options(error.value)


def write_csv(path: Path) -> Path:
    FRAME.to_csv(path, index=False)
    return path


def write_sheet(path: Path, rows: list[list[Any]], title: str = "Trees", more: tuple[str, ...] = ()) -> Path:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = title
    for row in rows:
        sheet.append(row)
    for name in more:
        book.create_sheet(name).append(["a"])
    book.save(path)
    return path


def as_xlsx(path: Path) -> str:
    days = pd.to_datetime(FRAME["day"]).dt.to_pydatetime()
    rows = [[*row[:3], day, row[4]] for row, day in zip(FRAME.values.tolist(), days, strict=True)]
    return str(write_sheet(path / "t.xlsx", [list(FRAME), *rows]))


def as_jsonl(path: Path) -> str:
    FRAME.to_json(path / "t.jsonl", orient="records", lines=True)
    return str(path / "t.jsonl")


def as_jsonl_gz(path: Path) -> str:
    (path / "t.jsonl.gz").write_bytes(gzip.compress(Path(as_jsonl(path)).read_bytes()))
    return str(path / "t.jsonl.gz")


def as_feather(path: Path) -> str:
    feather.write_feather(TYPED, path / "t.feather", chunksize=17)
    return str(path / "t.feather")


def as_stream(path: Path) -> str:
    with pa.OSFile(str(path / "t.arrows"), "wb") as file, pa.ipc.new_stream(file, TYPED.schema) as writer:
        writer.write_table(TYPED, max_chunksize=17)
    return str(path / "t.arrows")


def as_sqlite(path: Path) -> str:
    with sqlite3.connect(path / "t.db") as database:
        FRAME.to_sql("trees", database, index=False)
    database.close()
    return f"sqlite:{path / 't.db'}?query=SELECT * FROM trees WHERE word LIKE '%' ORDER BY rowid"


def as_duckdb(path: Path) -> str:
    with duckdb.connect(str(path / "t.duckdb")) as database:
        database.register("given", TYPED)
        database.execute("CREATE TABLE trees AS SELECT * FROM given")
    return f"duckdb:{path / 't.duckdb'}?query=SELECT * FROM trees"


def as_memory(path: Path) -> str:
    with fsspec.open("memory://trees/t.csv", "wb") as file:
        file.write(write_csv(path / "t.csv").read_bytes())
    return "memory://trees/t.csv"


MAKERS = [as_xlsx, as_jsonl, as_jsonl_gz, as_feather, as_stream, as_sqlite, as_duckdb, as_memory]


@pytest.mark.parametrize("make", MAKERS)
def test_the_schema_equals_that_of_the_csv(tmp_path: Path, make: Any) -> None:
    expected = infer(open_table(write_csv(tmp_path / "plain.csv"))).schema
    where = make(tmp_path)
    found = infer(open_table(where))
    kinds = {column.name: (column.kind, getattr(column, "levels", None)) for column in found.schema.columns}
    known = {column.name: (column.kind, getattr(column, "levels", None)) for column in expected.columns}
    # SQLite has no truth values, and JSON has no dates without a time.
    differ = {as_sqlite: {"known"}}.get(make, set())
    assert {name: kind for name, kind in kinds.items() if name not in differ} == {
        name: kind for name, kind in known.items() if name not in differ
    }
    assert found.rows == ROWS
    sizes = pa.Table.from_batches(found.table.batches(["size"])).column(0)
    assert sizes.cast(pa.float64()).to_pylist() == DATA["size"]


@pytest.mark.parametrize("make", MAKERS)
def test_a_fingerprint_depends_on_the_rows(tmp_path: Path, make: Any) -> None:
    where = make(tmp_path)
    assert open_table(where).fingerprint() == open_table(where).fingerprint()
    assert open_table(where).fingerprint() == infer(open_table(where)).table.fingerprint()


def test_a_query_may_be_longer_than_the_name_of_a_file(tmp_path: Path) -> None:
    long = "SELECT " + ", ".join(f"{i} AS column_number_{i}" for i in range(300))
    assert len(open_table(f"duckdb:?query={long}").names) == 300
    sqlite3.connect(tmp_path / "t.db").close()
    assert len(open_table(f"sqlite:{tmp_path}/t.db?query={long}").names) == 300


def test_a_query_of_other_rows_has_another_fingerprint(tmp_path: Path) -> None:
    where = as_duckdb(tmp_path)
    marks = {open_table(f"{where}{more}").fingerprint() for more in ("", " LIMIT 59", " ORDER BY size DESC")}
    assert len(marks) == 3


def test_a_duckdb_query_may_read_files_without_a_database(tmp_path: Path) -> None:
    pq.write_table(TYPED, tmp_path / "t.parquet")
    table = open_table(f"duckdb:?query=SELECT size, count FROM '{tmp_path}/t.parquet' WHERE count > 3")
    assert table.names == ["size", "count"]
    assert sum(map(len, table.batches())) == sum(count > 3 for count in DATA["count"])


def test_wrong_queries_are_refused(tmp_path: Path) -> None:
    for where in (as_sqlite(tmp_path), as_duckdb(tmp_path)):
        plain = where.partition("?")[0]
        assert "the query returns no row; change the query" in refusal(f"{plain}?query=SELECT * FROM trees WHERE 1 = 0")
        assert "refuses the query" in refusal(f"{plain}?query=SELECT * FROM shrubs")
        assert "refuses the query" in refusal(f"{plain}?query=DELETE FROM trees")
        assert "its tables are 'trees'" in refusal(plain)
        assert "after the question mark, write query=" in refusal(f"{plain}?SELECT 1")
        assert "there is no database" in refusal("sqlite:none.db?query=SELECT 1")
        assert "more than one column is called 'a'" in refusal(f"{plain}?query=SELECT 1 AS a, 2 AS a")
    assert "BLOB" in refusal(f"sqlite:{tmp_path / 't.db'}?query=SELECT x'00ff' AS a, size FROM trees")
    assert "a database needs a query: sqlite:" in refusal(tmp_path / "t.db")
    assert sqlite3.connect(tmp_path / "t.db").execute("SELECT count(*) FROM trees").fetchone() == (ROWS,)


def test_wrong_json_lines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"a": i, "b": {"c": i}}) + "\n" for i in range(30)))
    assert "these do not: 'b'" in refusal(path)
    assert infer(open_table(path), TableOptions(drop=("b",))).schema["a"].kind == "integer"
    path.write_text('{"a": 1}\n{"a": "x"}\n')
    assert "column 'a' holds a number in some rows and a string in others" in refusal(path)
    path.write_text("a,b\n1,2\n")
    assert "not lines of JSON" in refusal(path)
    path.write_text('{"a": 1, "b": 2}\n' * 20 + '{"a": 3}\n' * 5)
    assert sum(batch.column("b").null_count for batch in open_table(path).batches()) == 5


def test_wrong_arrow_files_are_refused(tmp_path: Path) -> None:
    path = Path(as_feather(tmp_path))
    content = path.read_bytes()
    for damaged in (content[:-200], content[: len(content) // 2], b"ARROW1" + b"\0" * 100, b"PAR1 and more"):
        path.write_bytes(damaged)
        assert "not a complete Arrow file" in refusal(path)
    path.write_bytes(b"FEA1" + b"\0" * 100)
    assert "Feather version 1 is not supported" in refusal(path)
    stream = Path(as_stream(tmp_path))
    table = open_table(stream)
    assert sum(map(len, table.batches(rows=5))) == ROWS
    with pa.OSFile(str(stream), "wb") as file, pa.ipc.new_stream(file, TYPED.schema) as writer:
        writer.write_table(TYPED.slice(0, 40))
    with pytest.raises(TableError, match="the file changed while it was read"):
        list(table.batches())


# --- spreadsheets ---

HEAD = ["word", "size"]
BODY = [[DATA["word"][i], DATA["size"][i]] for i in range(20)]


def test_a_sheet_with_two_tables_is_refused_and_one_can_be_chosen(tmp_path: Path) -> None:
    beside = [[*HEAD, None, "other"], *([*row, None, i] for i, row in enumerate(BODY))]
    path = write_sheet(tmp_path / "t.xlsx", beside)
    said = refusal(path)
    assert "holds more than one table: column C is empty, and column D is not" in said
    assert infer(open_table(said.rpartition(": ")[2])).schema.columns[1].name == "size"
    below = [HEAD, *BODY, [None, None], ["total", sum(row[1] for row in BODY)]]
    path = write_sheet(tmp_path / "t.xlsx", below)
    said = refusal(path)
    assert "holds more than one table: row 22 is empty, and there are cells below it" in said
    chosen = infer(open_table(said.rpartition(": ")[2]))
    assert chosen.rows == 20
    assert open_table(said.rpartition(": ")[2]).origin.source == f"xlsx:{path.resolve()}?sheet=Trees&cells=A1:B21"


def test_sheets_headers_and_cells(tmp_path: Path) -> None:
    path = write_sheet(tmp_path / "t.xlsx", [["Trees of 2024", None], HEAD, *BODY], more=("Notes",))
    found = infer(open_table(path, Reading(header="1")))
    assert [column.name for column in found.schema.columns] == HEAD
    assert "the workbook has 2 sheets; 'Trees' is read, not 'Notes'" in found.notes
    assert not any("sheets" in note for note in infer(open_table(f"xlsx:{path}?sheet=Trees&cells=A2:B22")).notes)
    assert "there is no sheet 'Shrubs'; the sheets are 'Trees', 'Notes'" in refusal(f"xlsx:{path}?sheet=Shrubs")
    assert "cells should be two corners, such as A1:F200, got 'B2'" in refusal(f"xlsx:{path}?cells=B2")
    assert "a workbook has no setting 'page'; use sheet and cells" in refusal(f"xlsx:{path}?page=1")
    assert "holds no rows below the names" in refusal(f"xlsx:{path}?sheet=Notes")
    none = open_table(write_sheet(tmp_path / "n.xlsx", BODY), Reading(header="none"))
    assert none.names == ["x0", "x1"]
    assert sum(map(len, none.batches())) == len(BODY)
    index = open_table(write_sheet(tmp_path / "i.xlsx", [[None, *HEAD], *([i, *row] for i, row in enumerate(BODY))]))
    assert [column.role for column in infer(index).schema.columns] == ["dropped", "model", "model"]


def test_files_that_are_no_workbooks_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.xlsx"
    path.write_text("a,b\n1,2\n")
    assert "not a readable workbook" in refusal(path)
    path.write_bytes(b"\xd0\xcf\x11\xe0 and more")
    assert "older than .xlsx, or has a password" in refusal(path)


@pytest.mark.parametrize(
    ("package", "make", "extra"), [("openpyxl", as_xlsx, "excel"), ("duckdb", as_duckdb, "duckdb")]
)
def test_a_package_that_is_absent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, make: Any, extra: str
) -> None:
    where = make(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    assert f"{package}, which is not installed; use: pip install 'cubicflow[{extra}]'" in refusal(where)


# --- standard input and URLs ---


class Input(io.TextIOWrapper):
    """A stub for standard input with given bytes."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))


def csv_of(path: Path) -> str:
    return str(write_csv(path / "t.csv"))


def csv_gz(path: Path) -> str:
    (path / "t.csv.gz").write_bytes(gzip.compress(Path(csv_of(path)).read_bytes()))
    return str(path / "t.csv.gz")


def parquet(path: Path) -> str:
    pq.write_table(TYPED, path / "t.parquet")
    return str(path / "t.parquet")


def npz(path: Path) -> str:
    np.savez(path / "t.npz", size=DATA["size"], count=DATA["count"])
    return str(path / "t.npz")


@pytest.mark.parametrize("make", [csv_of, csv_gz, as_jsonl, as_jsonl_gz, parquet, as_feather, as_stream, as_xlsx, npz])
def test_standard_input_of_any_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    path = Path(make(tmp_path))
    assert ending_of(path).replace(".arrow", "") in path.name
    monkeypatch.setattr(sys, "stdin", Input(path.read_bytes()))
    table = open_table("-")
    direct = open_table(path)
    assert table.fingerprint() == direct.fingerprint()
    assert table.origin.source is None
    assert pa.Table.from_batches(table.batches()).equals(pa.Table.from_batches(direct.batches()))


def test_wrong_standard_input_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(content: bytes) -> str:
        monkeypatch.setattr(sys, "stdin", Input(content))
        return refusal("-")

    assert "standard input: the input is empty" in sent(b"")
    assert sent(b"a,b\n1\n").startswith("standard input: not every line has the header's 2 columns")
    assert sent(b"a,b\n").startswith("standard input: the table has no rows")
    assert "a database needs a query" in sent(b"SQLite format 3\0 and more")
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in refusal("-")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "cannot be read by several processes" in refusal("-")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Serve the folder of the test from this machine."""
    served = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()
    thread.join()
    served.server_close()


def test_a_table_at_a_url(tmp_path: Path, server: str) -> None:
    for make in (csv_of, csv_gz, as_xlsx):
        path = Path(make(tmp_path))
        url = f"{server}/{path.name}"
        table = open_table(url)
        assert table.origin.source == url
        assert open_table(f"{url}?key=1").origin.source == url
        assert table.fingerprint() == open_table(path).fingerprint()
    (tmp_path / "plain").write_bytes(Path(parquet(tmp_path)).read_bytes())
    assert open_table(f"{server}/plain?download=1").names == list(DATA)  # the file's first bytes show the format
    assert f"{server}/none.csv: could not be read: the server answered 404" in refusal(f"{server}/none.csv")
    (tmp_path / "bad.csv").write_text("a,b\n1\n")
    assert refusal(f"{server}/bad.csv").startswith(f"{server}/bad.csv: not every line")


def test_a_table_in_an_object_store(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's client reads from a plain file server, which answers like an object store."""
    for name, value in (("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("EC2_METADATA_DISABLED", "true")):
        monkeypatch.setenv(f"AWS_{name}", value)
    (tmp_path / "bucket").mkdir()
    path = Path(csv_gz(tmp_path)).rename(tmp_path / "bucket" / "t.csv.gz")
    there = f"?endpoint_override={server.removeprefix('http://')}&scheme=http&region=us-east-1"
    table = open_table(f"s3://bucket/t.csv.gz{there}")
    assert table.origin.source == "s3://bucket/t.csv.gz"
    assert pa.Table.from_batches(table.batches()).equals(pa.Table.from_batches(open_table(path).batches()))
    assert "could not be read: Path does not exist" in refusal(f"s3://bucket/none.csv{there}")


def test_sources_that_do_not_answer_are_refused() -> None:
    url = "http://127.0.0.1:9/t.csv"
    assert refusal(url).startswith(f"{url}: could not be read: the server does not answer (")
    assert refusal("memory://none/t.csv").startswith("memory://none/t.csv: could not be read")
    assert "could not be read" in refusal("nowhere://bucket/t.csv")
    assert "give it as text, not as a Path" in refusal(Path("https://example.org/t.csv"))


def test_the_temporary_copy_is_removed_with_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr(sys, "stdin", Input(b"a,b\n1,2\n"))
    table = open_table("-")
    assert list((tmp_path / "copies").rglob("table.csv"))
    del table
    assert not list((tmp_path / "copies").iterdir())
