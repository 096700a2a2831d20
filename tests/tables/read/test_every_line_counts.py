"""Every line of a file is a row, a part of the header, or counted in a remark; no reader loses rows in silence."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from tests.helpers.options import message_with_options

from cubicflow.tables import Reading, TableError, infer, open_table
from cubicflow.tables.read.table import Table
from cubicflow.tables.read.text.lines import last_line, line_blocks, number_of_lines, open_quote, scan_lines

ROWS = 40
BODY = [f"{i},{i % 7}.5,w{i % 3}" for i in range(ROWS)]
HEADER = "a,b,c"
MULTILINE = Reading(allow_multiline=True)


def rows_of(table: Table) -> int:
    return sum(len(batch) for batch in table.batches())


def plain(end: str = "\n", last: str = "\n") -> bytes:
    return (end.join([HEADER, *BODY]) + last).encode()


def with_lines(*added: str, every: int = 10) -> bytes:
    """Return a table with further lines after every few rows, and at the end."""
    text = HEADER + "\n"
    for i, row in enumerate(BODY, 1):
        text += row + "\n" + ("".join(line + "\n" for line in added) if i % every == 0 else "")
    return text.encode()


FILES: dict[str, tuple[bytes, Reading, str]] = {
    "plain.csv": (plain(), Reading(), ""),
    "crlf.csv": (plain("\r\n", "\r\n"), Reading(), ""),
    "carriage_returns.csv": (plain("\r", "\r"), Reading(), ""),
    "no_end.csv": (plain(last=""), Reading(), ""),
    "byte_order_mark.csv": (b"\xef\xbb\xbf" + plain(), Reading(), ""),
    "table.tsv": (plain().replace(b",", b"\t"), Reading(), ""),
    "inches.csv": (plain().replace(b"w0", b'5" pipe'), Reading(), ""),
    "quoted.csv": (plain().replace(b"w0", b'"a ""b"", c"'), Reading(), ""),
    "packed.csv.gz": (gzip.compress(plain()), Reading(), ""),
    "packed_twice.csv.gz": (gzip.compress(plain()[:300]) + gzip.compress(plain()[300:]), Reading(), ""),
    "empty_lines.csv": (with_lines("", ""), Reading(), "8 lines are empty: left out"),
    "empty_lines.csv.gz": (gzip.compress(with_lines("", "")), Reading(), "8 lines are empty: left out"),
    "empty_crlf.csv": (with_lines("").replace(b"\n", b"\r\n"), Reading(), "4 lines are empty: left out"),
    "comments.csv": (
        b"# made today\n" + with_lines('# a "note', ""),
        Reading(comment="#"),
        "5 lines begin with #, 4 lines are empty: left out",
    ),
    "inches_and_comments.csv": (
        with_lines("# no").replace(b"w0", b'5" pipe'),
        Reading(comment="#"),
        "4 lines begin with #: left out",
    ),
    "title.csv": (b"a title\n\n" + plain(), Reading(header="2"), "2 lines are above the names: left out"),
    "open_title.csv": (
        b'"a title\nof two lines", 5"\n' + plain(),
        Reading(header="2"),
        "2 lines are above the names: left out",
    ),
    "no_names.csv": (plain().partition(b"\n")[2], Reading(header="none"), ""),
    "breaks.csv": (
        with_lines('7,1.5,"two', "", '# ""lines"""'),
        MULTILINE,
        "8 lines continue a quoted text of a line above",
    ),
    "breaks_and_comments.csv": (
        with_lines('7,1.5,"two', '# lines"', "# but this"),
        Reading(comment="#", allow_multiline=True),
        "4 lines continue a quoted text of a line above|4 lines begin with #: left out",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_lines_of_text(tmp_path: Path, name: str) -> None:
    content, reading, remark = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    table = open_table(path, reading)
    assert rows_of(table) == ROWS + (4 if "breaks" in name else 0)
    assert [*table.remarks] == [*filter(None, remark.split("|"))]
    assert table.spooled(table.names).remarks == table.remarks
    assert [*infer(table).notes] == [*table.remarks]


def test_lines_of_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(with_lines(""))))
    table = open_table("-")
    assert rows_of(table) == ROWS
    assert table.remarks == ("4 lines are empty: left out",)


def write_json(path: Path) -> None:
    records = [json.dumps({"a": i, "b": i / 2}) for i in range(ROWS)]
    text = "\n".join([*records[:20], "", *records[20:]])
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def write_sheet(path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["a", "b"], *([i, i / 2] for i in range(ROWS - 1)), ["#N/A", "#DIV/0!"], [" ", None], [None, None]):
        book.active.append(row)
    book.save(path)


FRAME = pa.table({"a": np.arange(ROWS), "b": np.arange(ROWS) / 2})
COLUMNAR: dict[str, tuple[Callable[[Path], object], str]] = {
    "t.jsonl": (write_json, f"{ROWS + 1} lines hold {ROWS} objects; each object is a row"),
    "t.jsonl.gz": (write_json, f"{ROWS + 1} lines hold {ROWS} objects; each object is a row"),
    "t.xlsx": (write_sheet, ""),  # a row of errors is a row of missing values; the rows below it are empty
    "t.parquet": (lambda path: parquet.write_table(FRAME, path, row_group_size=7), ""),
    "t.feather": (lambda path: feather.write_feather(FRAME, str(path), chunksize=7), ""),
    "t.npy": (lambda path: np.save(path, np.ones((ROWS, 2))), ""),
    "t.npz": (lambda path: np.savez(path, a=np.ones(ROWS), b=np.ones(ROWS)), ""),
}


@pytest.mark.parametrize("name", COLUMNAR)
def test_rows_of_other_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write, remark = COLUMNAR[name]
    write(path)
    table = open_table(path)
    assert rows_of(table) == ROWS
    assert table.remarks == ((remark,) if remark else ())


def test_empty_rows_among_chosen_cells_are_counted(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["a", "b"], [1, 2], [None, None], [" ", None], [3, 4]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    table = open_table(f"xlsx:{tmp_path / 't.xlsx'}?cells=A1:B9")
    assert rows_of(table) == 2
    assert table.remarks == ("2 rows are empty: left out",)


# --- quoted text over several lines ---


def refused(tmp_path: Path, text: str, reading: Reading | None = None, name: str = "t.csv") -> str:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    with pytest.raises(TableError) as error:
        rows_of(open_table(path, reading))
    assert str(error.value).startswith(f"{path}: ")
    return message_with_options(error.value).removeprefix(f"{path}: ")


NEVER_CLOSED = "the quotation mark that opens a text in line 201 is never closed"


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz"])
def test_an_open_quotation_mark_is_refused_with_its_line(tmp_path: Path, name: str) -> None:
    rows = [f"{i / 8},{i % 9},abc" for i in range(400)]
    rows[199] = '1.0,2,"abc'
    text = "\n".join(["x,y,z", *rows, ""]).replace(",", "\t" if name == "t.tsv" else ",")
    assert NEVER_CLOSED in refused(tmp_path, text, name=name)
    assert NEVER_CLOSED in refused(tmp_path, text, MULTILINE, name)
    closed = text.replace("39.875", '39.875"', 1)  # a quotation mark 120 rows below
    found = refused(tmp_path, closed, name=name)
    assert found.startswith("a quoted text goes on over several lines, first in line 201; close its quotation mark")
    assert found.endswith("with --allow-multiline")
    quoted = text.replace("abc", '"abc"').replace('""abc"', '"abc')  # the next quotation mark is in the next row
    assert "first in line 201" in refused(tmp_path, quoted, name=name)
    assert "not every line has the header's 3 columns" in refused(tmp_path, quoted + "1,2,3,4\n", MULTILINE, name)


def test_an_open_quotation_mark_in_a_large_file(tmp_path: Path) -> None:
    text = "a,b\n" + "1,2\n" * 10 + '3,"\n' + "1,2\n" * 1_100_000  # more than a block of the parser
    assert "in line 12 is never closed" in refused(tmp_path, text)


@pytest.mark.parametrize("last", ['1,2,"abc', '1,2,"abc\n', '1,2,"abc\r\n', '"', '1,2,"ab""'])
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_an_open_quotation_mark_in_the_last_line(tmp_path: Path, name: str, last: str) -> None:
    """No row is lost, but a file that was cut off ends in this way."""
    text = "# made today\nx,y,z\n" + '5" pipe,2,"3"\n' * 9 + last
    for reading in (Reading(comment="#"), Reading(comment="#", allow_multiline=True)):
        assert "the quotation mark that opens a text in line 12 is never closed" in refused(
            tmp_path, text, reading, name
        )


def test_the_last_line_is_found() -> None:
    for text in (b"a\nb,c", b"a\rb,c\r\n", b"b,c\n", b"b,c\r", b"b,c", b"a\r\n\r\nb,c\n", b"a\n" * 99_999 + b"b,c\n"):
        assert last_line(text) == b"b,c"
    assert last_line(b"") == last_line(b"a\n\n") == b""


@pytest.mark.parametrize("size", [3, 7, 64, 300])
@pytest.mark.parametrize("name", FILES)
def test_blocks_of_any_size_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: int
) -> None:
    """A block may end in the header, in a quoted text, or between a carriage return and a line feed."""
    content, reading, _ = FILES[name]
    (tmp_path / name).write_bytes(content)
    whole = open_table(tmp_path / name, reading)
    expected = pa.Table.from_batches(whole.batches()).combine_chunks()
    monkeypatch.setattr("cubicflow.tables.read.text.lines.BLOCK_BYTES", size)
    table = open_table(tmp_path / name, reading)
    assert pa.Table.from_batches(table.batches()).combine_chunks().equals(expected)
    assert table.remarks == whole.remarks


def test_a_text_that_is_longer_than_any_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubicflow.tables.read.text.lines.LONGEST_LINE", 1000)
    monkeypatch.setattr("cubicflow.tables.read.text.lines.BLOCK_BYTES", 100)
    assert "a line is longer than" in refused(tmp_path, "a,b\n" + "1,2\n" * 9 + "3," + "4" * 2000)
    text = "a,b\n" + "1,2\n" * 9 + '3,"' + "x\n" * 999 + '"\n'
    assert "a line is longer than" in refused(tmp_path, text, MULTILINE)
    assert "first in line 11" in refused(tmp_path, text)
    assert "in line 11 is never closed" in refused(tmp_path, text.replace('\n"\n', "\n"), MULTILINE)


def test_line_numbers_count_all_lines(tmp_path: Path) -> None:
    text = '# title\n\n# more\na,b\n1,2\n\n# x "\n3,"4\n5"\n' + "1,2\n" * 9
    found = refused(tmp_path, text, Reading(header="1", comment="#"))
    assert "first in line 8;" in found


@pytest.mark.parametrize("line", ["1,2,3,4", "1,2", '1,"2,3"', '"1",2,3,"4"', '1"",2"', '5",6",7",8"'])
def test_a_line_with_other_columns_is_named(tmp_path: Path, line: str) -> None:
    text = "# made today\nx,y,z\n1,2,3\n\n#\n" + '1,"2",3\n' * 9 + line + "\n" + "1,2,3\n" * 9
    found = refused(tmp_path, text, Reading(comment="#"))
    assert found.startswith("not every line has the header's 3 columns (line 15: Expected 3 columns, got ")


def test_an_empty_line_above_a_table_without_names_is_refused(tmp_path: Path) -> None:
    text = "\n" + "1,2,3\n" * 9
    assert "the first line is empty" in refused(tmp_path, text, Reading(header="none"))
    assert "the first line is empty" in refused(tmp_path, text, Reading(header="0"))


def test_names_over_several_lines_are_refused(tmp_path: Path) -> None:
    text = 'x,"a\nb",c\n' + "1,2,3\n" * 9
    assert "row 0 holds the names, and its last quotation mark is not closed" in refused(tmp_path, text)


# --- against Python's csv module ---


@pytest.mark.parametrize("seed", range(40))
def test_random_rows_are_read_as_they_were_written(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr("cubicflow.tables.read.text.lines.BLOCK_BYTES", draw.choice([3, 17, 100, 1000]))
    values = ["a", "", "1.5", 'in "quotes"', "two\nlines", "a,b", 'end"', '"begin', "\n\n", "# no"]
    rows = [[draw.choice(values) for _ in range(3)] for _ in range(draw.randint(1, 30))]
    written, empty, end = io.StringIO(), 0, draw.choice(["\n", "\r\n"])
    writer = csv.writer(written, lineterminator=end, quoting=draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    for row in [["x", "y", "z"], *rows]:
        writer.writerow(row)
        if row is not rows[-1] and row[0] != "x" and draw.random() < 0.2:
            written.write(end)
            empty += 1
    text = written.getvalue()
    (tmp_path / "t.csv").write_text(text if draw.random() < 0.5 else text.removesuffix(end), newline="")
    table = open_table(tmp_path / "t.csv", Reading(header="0", allow_multiline=True))
    found = pa.Table.from_batches(table.batches())
    assert [[*row.values()] for row in found.to_pylist()] == [[cell.strip() or None for cell in row] for row in rows]
    continued = sum(cell.count("\n") for row in rows for cell in row)
    assert any(f"{continued:,} lines continue" in remark for remark in table.remarks) == bool(continued)
    assert any(f"{empty:,} lines are empty" in remark for remark in table.remarks) == bool(empty)


@pytest.mark.parametrize("seed", range(40))
def test_the_scan_agrees_with_the_csv_module(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr("cubicflow.tables.read.text.lines.BLOCK_BYTES", draw.choice([1, 3, 1000]))
    text = "".join(draw.choices(['"', ",", "a", "\n", "\r\n", "\r", '""', ',"', '",'], k=draw.randint(1, 60)))
    reader = csv.reader(io.StringIO(text, newline=""))
    records, before, first = [], 0, None
    for record in reader:
        if record and reader.line_num > before + 1 and first is None:
            first = before + 1
        records.append((record, reader.line_num - before))
        before = reader.line_num
    (tmp_path / "t.csv").write_bytes(text.encode())
    blocks = [*line_blocks(tmp_path / "t.csv")]
    assert b"".join(blocks) == text.encode()
    found = scan_lines([line for block in blocks for line in block.splitlines(keepends=True)], b",")
    assert found.empty == sum(not record for record, _ in records)
    assert found.continued == sum(lines - 1 for _, lines in records)
    assert sum(map(number_of_lines, blocks)) == before == len(records) + found.continued
    if found.never_closed is None:
        assert found.first_open == first


@pytest.mark.parametrize(
    ("line", "is_open", "place"),
    [
        ('b","c', True, 3),
        ("b,c", True, -1),
        ('b""', True, -1),
        ('b"', True, None),
        ('"a""', False, 0),
        ('5"', False, None),
    ],
)
def test_an_open_quotation_mark_is_found_in_its_line(line: str, is_open: bool, place: int | None) -> None:
    assert open_quote(line.encode(), b",", is_open=is_open) == place
