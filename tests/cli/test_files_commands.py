"""The commands on tables other than plain CSV files. Errors are one line, and no partial file is left."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.csv
import pytest
from tests.helpers.command_line import Command

from .pets import make_frame

SMALL = ("--steps", 4, "--hidden-features", 8, "--num-bins", 4, "--device", "cpu")


def line_of(errors: str) -> str:
    (line,) = (line for line in errors.splitlines() if line.startswith("error: "))
    return line


def european(path: Path, rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "tag": pd.date_range("2024-01-01", periods=rows)[rng.permutation(rows)].strftime("%d.%m.%Y"),
            "preis": [f"{value:,.2f} €".translate(str.maketrans(",.", ".,")) for value in rng.uniform(900, 1900, rows)],
            "um": [f"2024-05-01T{hour:02d}:00:00+02:00" for hour in rng.integers(0, 24, rows)],
            "art": rng.choice(["a", "b"], rows),
        }
    )
    text = "# Auszug\n" + frame.to_csv(sep=";", index=False)
    path.write_text(text)
    return frame


def test_samples_of_a_european_table_have_its_format(cubicflow: Command, tmp_path: Path) -> None:
    path, run, rows = tmp_path / "t.csv", tmp_path / "run", tmp_path / "rows.csv"
    frame = european(path)
    status, _, errors = cubicflow("fit", path, "-o", run, "--comment", "#", *SMALL)
    assert status == 0, errors
    assert "note: 'tag' is read as dates, day first: " in errors
    assert "note: 'preis' is read as numbers: " in errors
    assert cubicflow("sample", run, "-n", 300, "-o", rows, "--seed", 0).status == 0
    sampled = pd.read_csv(rows, dtype=str)
    assert sampled["preis"].str.fullmatch(r"\d(\.\d{3})?,\d\d €|\d{1,3},\d\d €|\d{1,2}\.\d{3},\d\d €").all()
    assert sampled["tag"].str.fullmatch(r"\d\d\.\d\d\.20\d\d").all()
    assert sampled["um"].str.fullmatch(r"2024-0\d-\d\dT\d\d:00:00\+02:00").all()
    for data in (path, rows):  # with and without a comment line, delimited by semicolons and by commas
        status, output, errors = cubicflow("score", run, data, "-o", "-")
        assert status == 0, errors
        assert len(output.splitlines()) == 1 + (len(frame) if data == path else 300)
        assert "values are not in the fitted table" not in errors
    assert "this is the file that the model was fitted to" in cubicflow("evaluate", run, path).output
    assert cubicflow("plot", run, "--rows", 20).status == 0


def test_a_table_from_standard_input(cubicflow: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, run = make_frame(100).to_csv(index=False).encode(), tmp_path / "run"

    def send() -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    send()
    status, _, errors = cubicflow("fit", "-", "-o", run, *SMALL)
    assert status == 0, errors
    assert "standard input: 100 rows" in errors
    send()
    assert "this is the file that the model was fitted to" in cubicflow("evaluate", run, "-").output
    send()
    scores = cubicflow("score", run, "-", "-o", "-").output
    assert len(pyarrow.csv.read_csv(io.BytesIO(scores.encode()))) == 100
    line = line_of(cubicflow("plot", run).errors)
    assert line.endswith("which is not read again; give a table with --data")


def test_the_sql_query_of_a_run_is_never_executed_again(cubicflow: Command, tmp_path: Path, table: Path) -> None:
    """The run folder may come from an untrusted source."""
    with sqlite3.connect(tmp_path / "t.db") as database:
        make_frame(100)[["kind", "size"]].to_sql("pets", database, index=False)
    database.close()
    where, run = f"sqlite:{tmp_path / 't.db'}?query=SELECT * FROM pets", tmp_path / "run"
    status, output, errors = cubicflow("fit", where, "-o", run, *SMALL)
    assert status == 0, errors
    assert f"cubicflow score {run} '{where}' -o scores.csv" in output
    assert json.loads((run / "config.json").read_text())["table"]["source"] == where
    assert "give a table with --data" in line_of(cubicflow("plot", run).errors)
    assert cubicflow("evaluate", run, where).status == 0
    assert cubicflow("plot", run, "--data", where, "--rows", 20).status == 0


def test_a_header_is_remembered(cubicflow: Command, tmp_path: Path) -> None:
    path, run = tmp_path / "t.csv", tmp_path / "run"
    np.savetxt(path, np.random.default_rng(0).integers(0, 9, (100, 3)), delimiter=",", fmt="%d")
    line = line_of(cubicflow("fit", path, "-o", run, *SMALL).errors)
    assert line.endswith(
        "State that there are no names, or that row 0 holds the names, with --header none or --header 0"
    )
    assert not run.exists()
    status, _, errors = cubicflow("fit", path, "-o", run, "--header", "none", *SMALL)
    assert status == 0, errors
    assert len(cubicflow("score", run, path, "-o", "-").output.splitlines()) == 101
    path.write_text("x0,x1,x2\n" + path.read_text())
    assert len(cubicflow("score", run, path, "-o", "-", "--header", 0).output.splitlines()) == 101


def test_european_tables_are_judged(cubicflow: Command, tmp_path: Path) -> None:
    european(tmp_path / "t.csv")
    shutil.copy(tmp_path / "t.csv", tmp_path / "u.csv")
    status, _, errors = cubicflow("judge", tmp_path / "t.csv", tmp_path / "u.csv", "--comment", "#")
    assert status == 0, errors
    assert "'preis' is read as numbers: " in errors


@pytest.mark.parametrize("option", ["--transform", "--type", "--bounds"])
def test_a_comma_between_pairs_is_not_swallowed(cubicflow: Command, table: Path, tmp_path: Path, option: str) -> None:
    value = {"--transform": "log", "--type": "real", "--bounds": "0:1"}[option]
    pair = f"size={value},weight={value}"
    status, output, errors = cubicflow("fit", table, "-o", tmp_path / "run", option, pair)
    assert (status, output) == (2, "")
    apart = f"{option} 'size={value}' {option} 'weight={value}'"
    assert line_of(errors) == f"error: {option} takes one column; a comma does not separate columns; write {apart}"
    assert not (tmp_path / "run").exists()


def test_scores_that_fail_print_nothing(cubicflow: Command, run: Path, tmp_path: Path) -> None:
    frame = make_frame(300)
    frame.loc[250, "planet"] = "mars"
    frame.to_csv(tmp_path / "new.csv", index=False)
    status, output, errors = cubicflow("score", run, tmp_path / "new.csv", "-o", "-")
    assert (status, output) == (2, "")
    assert "'mars'" in line_of(errors)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("http://127.0.0.1:9/a//b.csv", "http://127.0.0.1:9/a//b.csv: could not be read: the server does not answer"),
        ("sqlite:none.db?query=SELECT 1", "there is no database 'none.db'"),
        ("s3:/bucket/t.csv", "a URL has two slashes"),
        ("table.dat", "there is no such file"),
    ],
)
def test_wrong_addresses_are_refused(cubicflow: Command, tmp_path: Path, data: str, said: str) -> None:
    status, output, errors = cubicflow("fit", data, "-o", tmp_path / "run", *SMALL)
    assert (status, output) == (2, "")
    assert said in line_of(errors)
    assert not (tmp_path / "run").exists()


# --- more steps ---


def test_a_finished_run_is_continued_by_a_new_run_with_start(cubicflow: Command, tmp_path: Path) -> None:
    table, run, longer = tmp_path / "pets.csv", tmp_path / "run", tmp_path / "longer"
    make_frame(120).to_csv(table, index=False)
    assert cubicflow("fit", table, "-o", run, *SMALL).status == 0
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    status, output, errors = cubicflow("fit", table, "-o", run, *SMALL[2:], "--steps", 12, "--resume")
    assert (status, output) == (2, "")
    line = line_of(errors)
    assert f"{run} is finished after 4 steps, and its learning rate is 0" in line
    assert "steps was 4, is now 12" in line
    assert "start another run in another folder from its weights: " in line
    assert f", or fit the table with --start {run}" in line
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before
    status, output, errors = cubicflow("fit", table, "-o", longer, *SMALL[2:], "--steps", 12, "--start", run)
    assert status == 0, errors
    assert "after 12 steps" in output
    for more, said in (
        (("--seed", 7), "that run has another split"),
        (("--drop", "tame"), "that run interpreted the columns in another way"),
        (("--num-blocks", 1), "the model of that run has other sizes"),
    ):
        status, _, errors = cubicflow("fit", table, "-o", tmp_path / "other", *SMALL, "--start", run, *more)
        assert status == 2
        assert said in line_of(errors)
        assert not (tmp_path / "other").exists()
    assert "cannot start from itself" in line_of(cubicflow("fit", table, "-o", run, "--start", run).errors)
    assert "there is no run" in line_of(cubicflow("fit", table, "-o", longer, "--start", tmp_path).errors)
    make_frame(140).to_csv(table, index=False)
    line = line_of(cubicflow("fit", table, "-o", tmp_path / "other", *SMALL, "--start", run).errors)
    assert "that run was fitted to another table" in line
