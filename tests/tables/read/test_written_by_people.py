"""Headers, comments, numbers and dates in everyday formats: read if all rows agree, reported, and written back."""

from __future__ import annotations

import csv
import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.helpers.options import message_with_options

from cubicflow.tables import Reading, TableError, TableOptions, infer, open_table
from cubicflow.tables.read.text.lines import without_comments
from cubicflow.tables.read.text.notations import DateNotation, NumberNotation, ZonedNotation

RNG = np.random.default_rng(0)
NUMBERS = [round(float(value), 1) for value in RNG.uniform(-400, 9000, 40)]
DAYS = [dt.date(2024, 1, 1) + dt.timedelta(days=9 * i) for i in range(40)]
GOOD = "a,b\n" + "\n".join(f"{i},{i * 0.5}" for i in range(30)) + "\n"


def write(path: Path, delimiter: str = ",", **columns: list[Any]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def refusal(path: Path, reading: Reading | None = None) -> str:
    with pytest.raises(TableError) as error:
        infer(open_table(path, reading))
    return message_with_options(error.value)


def american(value: float) -> str:
    return f"{value:,.2f}"


def european(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def french(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", "\u202f,"))


@pytest.mark.parametrize(
    ("written", "described"),
    [
        (american, "numbers"),
        (european, "numbers"),
        (french, "numbers"),
        (lambda value: f"{'-' if value < 0 else ''}${abs(value):,.2f}", "numbers"),
        (lambda value: f"{european(value)} €", "numbers"),
        (lambda value: f"{value:.2f}%", "numbers in percent"),
        (lambda value: f"{value:,.2f}".replace(",", "'"), "numbers"),
    ],
)
def test_numbers_are_read_reported_and_written_back(tmp_path: Path, written: Any, described: str) -> None:
    texts = [written(value) for value in NUMBERS]
    path = write(tmp_path / "t.csv", x=texts, y=list(range(40)))
    found = infer(open_table(path))
    assert found.schema["x"].kind == "stepped"
    (note,) = found.notes
    assert note.startswith(f"'x' is read as {described}: ")
    plain = pa.Table.from_batches(found.table.batches(["x"])).column(0).cast(pa.float64())
    assert plain.to_pylist() == NUMBERS
    format = found.table.notations["x"]
    assert format.decimals == 2
    assert Reading.from_json({"formats": {"x": format.to_json()}}).notations == {"x": format}
    assert format.from_plain(pa.array([f"{value:.2f}" for value in NUMBERS])).to_pylist() == texts
    later = open_table(path, Reading(notations=found.table.notations))  # a run reads the file like this, in batches
    assert pa.Table.from_batches(later.batches(["x"])).column(0).cast(pa.float64()).to_pylist() == NUMBERS


@pytest.mark.parametrize(
    ("order", "separator", "pattern"),
    [("mdy", "/", "%m/%d/%Y"), ("dmy", ".", "%d.%m.%Y"), ("dmy", "/", "%d/%m/%Y"), ("ymd", "/", "%Y/%m/%d")],
)
@pytest.mark.parametrize("clock", ["", " %H:%M:%S"])
def test_dates_are_read_reported_and_written_back(
    tmp_path: Path, order: str, separator: str, pattern: str, clock: str
) -> None:
    times = [dt.datetime.combine(day, dt.time(i % 24, 59, 7)) for i, day in enumerate(DAYS)]
    texts = [time.strftime(pattern + clock) for time in times]
    found = infer(open_table(write(tmp_path / "t.csv", day=texts, y=list(RNG.uniform(size=40)))))
    assert found.schema["day"].kind == "datetime"
    assert found.table.notations["day"] == DateNotation(order, separator)
    plain = pa.Table.from_batches(found.table.batches(["day"])).column(0)
    expected = [time.strftime(f"%Y-%m-%d{clock}") for time in times]
    assert plain.to_pylist() == expected
    assert DateNotation(order, separator).from_plain(pa.array(expected)).to_pylist() == texts


def test_days_without_leading_zeros_are_written_without_them(tmp_path: Path) -> None:
    texts = [f"{day.day}.{day.month}.{day.year}" for day in DAYS]
    found = infer(open_table(write(tmp_path / "t.csv", day=texts, y=list(RNG.uniform(size=40)))))
    plain = pa.Table.from_batches(found.table.batches(["day"])).column(0)
    assert plain.to_pylist() == [day.isoformat() for day in DAYS]
    assert found.table.notations["day"].from_plain(plain.combine_chunks()).to_pylist() == texts


def kinds(path: Path, **options: Any) -> dict[str, str]:
    return {column.name: column.kind for column in infer(open_table(path), TableOptions(**options)).schema.columns}


def test_an_ambiguous_column_is_decided_by_another(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    open_dates = [f"{1 + i % 12:02d}/{1 + i % 9:02d}/2024" for i in range(40)]
    thousands = [f"{1 + i % 9},{100 + 7 * (i % 18)}" for i in range(40)]

    def read(**columns: list[Any]) -> dict[str, list[Any]]:
        delimiter = columns.pop("delimiter", ",")
        found = infer(open_table(write(path, str(delimiter), **columns, y=list(range(40)))))
        types = found.table.types
        batch = pa.Table.from_batches(found.table.batches())
        return {name: batch.column(name).cast(types[name]).to_pylist() for name in columns}

    whole = [int(text.replace(",", "")) for text in thousands]
    small = [float(text.replace(",", ".")) for text in thousands]
    assert read(n=thousands)["n"] == whole  # the delimiter is a comma, so it is no decimal comma
    assert read(n=thousands, delimiter=";")["n"] == small
    assert read(n=thousands, delimiter="\t")["n"] == thousands  # ambiguous: the column stays words
    assert read(n=thousands, x=[f"{i},5" for i in range(40)])["n"] == small
    assert read(n=thousands, x=[i / 8 for i in range(40)], delimiter=";")["n"] == whole  # x has decimal points
    points = [text.replace(",", ".") for text in thousands]
    assert read(n=points)["n"] == small
    assert read(n=points, x=[f"{i},5" for i in range(40)])["n"] == whole  # points separate thousands, as x has commas
    assert read(d=open_dates)["d"] == open_dates
    clear = [f"{1 + i % 28:02d}/12/2024" for i in range(40)]
    assert read(d=open_dates, e=clear)["d"][1] == dt.date(2024, 2, 2)
    assert read(d=open_dates, e=clear)["d"][9] == dt.date(2024, 1, 10)
    assert read(d=open_dates, x=[european(value) for value in NUMBERS])["d"][9] == dt.date(2024, 1, 10)
    assert read(d=open_dates, x=[american(value) for value in NUMBERS])["d"] == open_dates  # American or British


def test_columns_that_do_not_agree_stay_words(tmp_path: Path) -> None:
    for words in (
        ["1,5", "2.5"],
        ["$1", "2"],
        ["$1", "€2"],
        ["12%", "3 of 4"],
        ["31.02.2024", "01.03.2024"],
        ["007,5", "1,5"],
    ):
        path = write(tmp_path / "t.csv", c=words * 20, y=list(range(40)))
        assert kinds(path)["c"] == "categorical", words
    for words in (["1,5", "2,25"], ["5%", "7%"], ["31.12.2024", "01.03.2024"]):
        path = write(tmp_path / "t.csv", c=words * 20, y=list(range(40)))
        assert kinds(path)["c"] != "categorical", words
        assert kinds(path, kinds={"c": "categorical"})["c"] == "categorical"
        assert not infer(open_table(path), TableOptions(kinds={"c": "categorical"})).notes


@pytest.mark.parametrize("offset", ["+02:00", "-0330", "Z", "+00:00", "+05"])
@pytest.mark.parametrize("between", ["T", " "])
def test_time_zones_are_written_as_they_were_read(tmp_path: Path, offset: str, between: str) -> None:
    texts = [f"2024-05-{1 + i % 28:02d}{between}{i % 24:02d}:30:00{offset}" for i in range(40)]
    found = infer(open_table(write(tmp_path / "t.csv", t=texts, y=list(RNG.uniform(size=40)))))
    column = found.schema["t"]
    assert found.table.notations["t"] == ZonedNotation(between, offset)
    values = column.decode(column.encode(pa.array(texts)))
    assert found.table.notations["t"].from_plain(values.cast(pa.string())).to_pylist() == texts


def test_several_time_zones_give_a_note(tmp_path: Path) -> None:
    texts = [f"2024-05-{1 + i % 28:02d} {i % 24:02d}:30:00{'+01:00' if i % 2 else '+02:00'}" for i in range(40)]
    found = infer(open_table(write(tmp_path / "t.csv", t=texts, y=list(range(40)))))
    assert "'t' holds times at different offsets from UTC; samples are in UTC" in found.notes
    assert found.schema["t"].type == "timestamp[s, tz=UTC]"


@pytest.mark.parametrize(
    "value",
    [
        {"kind": "number", "decimal": ";"},
        {"kind": "number", "decimal": ",", "group": ","},
        {"kind": "number", "before": "x"},
        {"kind": "number", "group": 3},
        {"kind": "number", "decimals": 31},
        {"kind": "number", "unknown": ","},
        {"kind": "date", "order": "dym", "separator": "/"},
        {"kind": "date", "order": "dmy"},
        {"kind": "zoned", "between": "T", "offset": "Berlin"},
        {"kind": "other"},
        {"kind": ["number"]},
        "number",
    ],
)
def test_formats_from_an_untrusted_file_are_checked(value: Any) -> None:
    with pytest.raises(TableError):
        Reading.from_json({"formats": {"a": value}})


def test_every_number_format_reads_what_it_writes() -> None:
    """The test reads back every written number in every format."""
    for decimal, group in ((".", ","), (",", "."), (",", " "), (".", "'")):
        for before, after in (("", ""), ("$", ""), ("", " €"), ("", "%")):
            format = NumberNotation(decimal, group, before, after)
            plain = pa.array([f"{value:.{digits}f}" for value in NUMBERS for digits in (0, 1, 3)])
            assert format.matches_all(format.from_plain(plain))
            assert format.to_plain(format.from_plain(plain)).to_pylist() == plain.to_pylist()
            assert format.to_plain(plain.filter(pa.array([True] * 3 + [False] * 117))).null_count == 0


# --- headers and comments ---


def test_a_header_may_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("made by hand\n\n" + GOOD)
    table = open_table(path, Reading(header="2"))
    assert table.names == ["a", "b"]
    assert infer(table).rows == 30
    path.write_text("size,,kind\nwidth,height,\n" + "".join(f"{i},{i / 2},k{i % 3}\n" for i in range(30)))
    table = open_table(path, Reading(header="0-1"))
    assert table.names == ["size width", "size height", "kind"]
    assert infer(table).rows == 30
    path.write_text(GOOD.split("\n", 1)[1])
    table = open_table(path, Reading(header="none"))
    assert table.names == ["x0", "x1"]
    assert infer(table).rows == 30
    path.write_text("".join(f"{i},5;{i % 3};k\n" for i in range(30)))
    assert infer(open_table(path, Reading(header="none"))).schema["x0"].kind == "stepped"
    assert "there is no row 70 to hold the names" in refusal(path, Reading(header="70"))
    for header in ("1-0", "-1", "x", "0-", "none-1", ""):
        with pytest.raises(TableError, match="header should be the row of the names"):
            Reading(header=header)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n", True),
        ("1,2\n3,4\n", True),
        ("2024-01-01,7\n2024-01-02,8\n", True),
        ("yes,male\nno,male\nyes,female\n", True),
        ("1,1\n2,2\n", True),
        ("town,1990,1991\nUlm,7,8\n", False),
        ("name,1990\nUlm,x\n", False),
        ("size,kind\n1,a\n", False),
        ("word,kind\nash,a\nword,b\n", False),
        (",1.5,2.5\n0,1,2\n", True),
    ],
)
def test_a_first_row_that_looks_like_values_is_refused(tmp_path: Path, text: str, asked: bool) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    said = refusal(path)
    assert ("is it a row of the table, or does it hold the names?" in said) == asked
    if asked:
        assert said.endswith("with --header none or --header 0")
        assert open_table(path, Reading(header="none")).names[0] == "x0"


def test_an_index_without_a_name_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(",a\n" + "".join(f"{i},{i % 7}\n" for i in range(40)))
    found = infer(open_table(path))
    assert [(column.name, column.role) for column in found.schema.columns] == [
        ("__index_level_0__", "dropped"),
        ("a", "model"),
    ]
    assert found.notes == ("the first column has no name, so it is taken for a row index; it is left out",)
    path.write_text("Unnamed: 0,a\n" + "".join(f"{i},{i % 7}\n" for i in range(40)))
    assert infer(open_table(path)).schema["Unnamed: 0"].role == "dropped"
    path.write_text("a\n" + "".join(f"{i % 7}\n" for i in range(40)))
    assert found.schema.check(open_table(path)) == ["a"]


@pytest.mark.parametrize("comment", ["#", "//"])
def test_comment_lines_are_left_out(tmp_path: Path, comment: str) -> None:
    lines = GOOD.splitlines()
    for place in (0, 1, 7, len(lines)):
        lines.insert(place, f'{comment} a remark, with "one quote')
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + f"\n{comment} the end")
    table = open_table(path, Reading(comment=comment))
    assert pa.Table.from_batches(table.batches()).equals(pa.Table.from_batches(open_plain(tmp_path).batches()))
    for bad in ("", " ", 'x"', "#########"):
        with pytest.raises(TableError, match="comment should be the start of comment lines"):
            Reading(comment=bad)


def open_plain(folder: Path) -> Any:
    (folder / "plain.csv").write_text(GOOD)
    return open_table(folder / "plain.csv")


def test_a_comment_mark_inside_quotes_is_text() -> None:
    text = b'#x\na,"b\n#c"\r\n  # y\n\n1,"2""\n#3"\n#z'
    assert without_comments(text, b"#", b",") == (b'a,"b\n#c"\r\n\n1,"2""\n#3"\n', 3)


def test_reading_options_that_do_not_apply_are_refused(tmp_path: Path) -> None:
    from cubicflow.tables import fit_table

    np.save(tmp_path / "x.npy", np.zeros((30, 2)))
    for reading, word in ((Reading(header="0"), "header"), (Reading(comment="#"), "comment")):
        with pytest.raises(TableError, match=f"this kind of table has no {word} to choose"):
            fit_table(tmp_path / "x.npy", tmp_path / "run", reading=reading)
    assert not (tmp_path / "run").exists()
