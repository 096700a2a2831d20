"""Commands on new tables with decimal commas and dates such as 31.12.2024: the values count, and the notation stays."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.command_line import Command

from cubicflow.tables import FittedTable, fit_table, open_table
from cubicflow.tables.read.table import Table
from cubicflow.tables.read.text.found_notations import detect_notations

PRICES = [1096.53, 68.42, 7.26, 12.01, 55.07, 2310.93, 99.99, 31.54, 4.76, 810.12]
DAYS = [f"{3 * i + 1}.{i + 2}.2024" for i in range(9)]
TIMES = [f"2024-05-0{i + 1}T1{i}:30:00+02:00" for i in range(7)]
COLUMNS = ("preis", "menge", "tag", "zeit", "wort", "satz")


def european(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def rows(count: int) -> list[dict[str, str]]:
    """Return rows in which the price determines the amount, the day a word, and the time another word."""
    rng = np.random.default_rng(0)
    found = []
    for i, j, k in zip(*(rng.integers(n, size=count) for n in (10, 9, 7)), strict=True):
        amounts = {"preis": european(PRICES[i]), "menge": european(2 * PRICES[i])}
        found.append({**amounts, "tag": DAYS[j], "zeit": TIMES[k], "wort": f"w{j}", "satz": f"s{k}"})
    return found


def text(content: list[dict[str, str]], delimiter: str = ";") -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(content)
    return file.getvalue()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run, hardly trained: what fills the gaps are the rules that the rows show."""
    folder = tmp_path_factory.mktemp("notations")
    (folder / "t.csv").write_text(text(rows(300)))
    small: dict[str, Any] = {"settings": {"hidden_features": 8}, "device": "cpu"}
    fit_table(folder / "t.csv", folder / "run", steps=2, seed=0, progress=False, **small)
    return folder / "run"


GAPS = {"menge", "wort", "satz"}
WHOLE = rows(30)
TABLE = [{name: "" if name in GAPS else value for name, value in row.items()} for row in WHOLE]


def as_workbook(path: Path) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(COLUMNS)
    for row in TABLE:
        book.active.append([row[name] or None for name in COLUMNS])
    book.save(path)
    return path


@pytest.mark.parametrize("origin", ["csv", "tsv", "gz", "standard input", "workbook", "part of a workbook"])
def test_gaps_are_filled_given_the_values_of_the_row(
    cubicflow: Command, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str
) -> None:
    source: object = tmp_path / "new.csv"
    if origin == "tsv":
        source = tmp_path / "new.tsv"
        source.write_text(text(TABLE, "\t"))
    elif origin == "gz":
        source = tmp_path / "new.csv.gz"
        source.write_bytes(gzip.compress(text(TABLE).encode()))
    elif origin == "workbook":
        source = as_workbook(tmp_path / "new.xlsx")
    elif origin == "part of a workbook":
        source = f"xlsx:{as_workbook(tmp_path / 'new.xlsx')}?cells=A1:F31"
    elif origin == "standard input":
        source = "-"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text(TABLE).encode())))
    else:
        Path(str(source)).write_text(text(TABLE))
    done = cubicflow("impute", run, source, "-o", "-", "--seed", 0)
    assert done.status == 0, done.errors
    filled = list(csv.DictReader(io.StringIO(done.output)))
    assert [{name: row[name] for name in COLUMNS} for row in filled] == WHOLE  # also in the notation of the table
    assert {row["filled"] for row in filled} == {"menge,wort,satz"}


def test_a_plain_table_is_read_as_well(cubicflow: Command, run: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.csv"
    plain.write_text("preis,menge,tag,zeit,wort,satz\n1096.53,,2024-02-01,2024-05-01 10:30:00Z,,s0\n")
    (row,) = csv.DictReader(io.StringIO(cubicflow("impute", run, plain, "-o", "-", "--seed", 0).output))
    assert (row["preis"], row["menge"], row["tag"], row["wort"]) == ("1.096,53", "2.193,06", "1.2.2024", "w0")


def test_a_filled_fraction_is_not_cut_to_the_whole_numbers_of_a_new_table(
    cubicflow: Command, run: Path, tmp_path: Path
) -> None:
    """All amounts of this table happen to be whole; the amount for 55.07 is not."""
    new = tmp_path / "new.csv"
    new.write_text("preis;menge;tag;zeit;wort;satz\n12;24;;;;\n55,07;;;;;\n")
    _, row = csv.DictReader(io.StringIO(cubicflow("impute", run, new, "-o", "-", "--seed", 0).output))
    assert row["menge"] == "110,14"


def described(table: Table) -> tuple[object, ...]:
    assert table.text is not None
    return table.text.has_header, table.text.delimiter, table.remarks


@pytest.mark.parametrize("origin", ["file", "standard input"])
def test_no_wrapper_loses_how_a_table_is_read(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str
) -> None:
    path, reading = tmp_path / "new.csv", FittedTable.load(run).reading
    path.write_text(text(TABLE))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    table = open_table(path if origin == "file" else "-", reading)
    kept = table.spooled(["preis", "tag"])
    assert described(table) == described(kept) == (True, ";", ())
    assert (set(table.notations), set(kept.notations)) == ({"preis", "menge", "tag", "zeit"}, {"preis", "tag"})
    assert [str(kept.types[name]) for name in ("preis", "tag")] == ["double", "date32[day]"]
    days = [dt.datetime.strptime(row["tag"], "%d.%m.%Y").date().isoformat() for row in TABLE]
    for each in (table, kept, kept.spooled(["tag"]), detect_notations(kept, ["preis", "tag"])):
        assert [day for batch in each.batches(["tag"]) for day in batch.column(0).to_pylist()] == days
        assert "tag" in each.notations
    assert kept.fingerprint() == table.fingerprint() == open_table(path).fingerprint()
