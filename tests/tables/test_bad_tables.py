"""Difficult tables: each is handled, or refused with a one-line error."""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.helpers.options import option_of
from tests.helpers.table_parts import load_parts

from cubicflow.tables import Split, TableError, TableOptions, fit_table, infer, open_table
from cubicflow.tables.model.flow import FlowEncoder
from cubicflow.tables.read.table import in_memory
from cubicflow.tables.run.copies import copied_rows
from cubicflow.training import RunFolderError

RNG = np.random.default_rng(0)
N = 300
X = RNG.standard_normal(N)


def csv(path: Path, **columns: Any) -> Path:
    lines = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, line)) for line in lines)]) + "\n")
    return path


def refused(table: Any, option: str | None, **options: Any) -> str:
    with pytest.raises(TableError) as error:
        infer(table, TableOptions(**options))
    assert option_of(error.value) == option
    assert "\n" not in str(error.value)
    return error.value.advice.message


# --- whole numbers that are equal in float64 ---


def test_numbers_of_25_digits_that_repeat_are_words(tmp_path: Path) -> None:
    codes = [10**24 + int(i) for i in RNG.integers(0, 7, N)]
    assert len(set(map(float, codes))) == 1
    found = infer(open_table(csv(tmp_path / "t.csv", x=X, code=codes)))
    column = found.schema["code"]
    assert column.kind == "categorical"
    assert "'code' is read as words: its whole numbers have 25 digits" in " ".join(found.notes)
    text = pa.array([str(code) for code in codes])
    assert column.decode(column.encode(text)).to_pylist() == text.to_pylist()


def test_numbers_of_25_digits_that_never_repeat_are_refused(tmp_path: Path) -> None:
    table = csv(tmp_path / "t.csv", x=X, code=[10**24 + i for i in range(N)])
    said = refused(open_table(table), "--drop code")
    assert "whole numbers have 25 digits, but only 16 can be kept" in said
    assert said.endswith("leave it out")


def test_numbers_of_25_digits_that_differ_in_float64_are_a_quantity(tmp_path: Path) -> None:
    amounts = [int(i) * 10**18 + 1 for i in RNG.permutation(10**6)[:N]]
    assert infer(open_table(csv(tmp_path / "t.csv", x=X, amount=amounts))).schema["amount"].kind == "real"


def test_decimals_that_are_equal_in_float64_are_refused() -> None:
    codes = pa.array([str(10**24 + i) for i in range(N)]).cast(pa.decimal128(25, 0))
    said = refused(in_memory(pa.table({"x": X, "code": codes})), "--drop code")
    assert "'code' holds decimals that differ only beyond their 16th digit" in said


# --- NUL bytes ---


@pytest.mark.parametrize("zipped", [False, True])
def test_a_nul_byte_is_refused_with_its_row(tmp_path: Path, zipped: bool) -> None:
    words = ["ash", "oak"] * (N // 2)
    words[41] = "o\0k"
    path = csv(tmp_path / "t.csv", x=X, word=words)
    if zipped:
        path = path.with_suffix(".csv.gz")
        path.write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    assert "t.csv" in (said := refused(open_table(path), None))
    assert "row 42, column 'word', holds a NUL byte" in said


def test_a_picture_is_not_taken_for_text_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "picture.csv"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80" + bytes(range(256)))
    with pytest.raises(TableError, match="hold NUL bytes, so this is not a text file"):
        open_table(path)


# --- many different words ---


def test_near_identifiers_are_named_with_their_share() -> None:
    names = [f"n{i % 250}" for i in range(N)]
    towns = [f"t{i % 12}" for i in range(N)]
    found = infer(in_memory(pa.table({"x": X, "name": names, "town": towns})))
    (warning,) = found.warnings
    assert warning.startswith("'name' holds 250 different words in 300 rows (83 % of its values are distinct)")


def test_many_words_are_accepted_with_a_note() -> None:
    rows = 12_500
    words = [f"w{i % 5_000}" for i in range(rows)]
    found = infer(in_memory(pa.table({"x": RNG.standard_normal(rows), "word": words})))
    assert len(found.schema["word"].levels) == 5_000  # type: ignore[attr-defined]
    (warning,) = found.warnings
    assert "'word' holds 5,000 different words in 12,500 rows (40 % of its values are distinct)" in warning


def test_many_words_as_context_are_refused() -> None:
    rows = 12_500
    words = [f"w{i % 5_000}" for i in range(rows)]
    table = in_memory(pa.table({"x": RNG.standard_normal(rows), "word": words}))
    said = refused(table, "--drop word", context=("word",))
    assert "more than 4096 words" in said


# --- few rows ---


def test_more_columns_than_rows_give_a_note() -> None:
    wide = in_memory(pa.table({f"c{i}": RNG.standard_normal(50) for i in range(300)}))
    (warning,) = infer(wide).warnings
    assert "40 training rows for 300 columns" in warning
    tall = in_memory(pa.table({f"c{i}": RNG.standard_normal(50) for i in range(8)}))
    assert infer(tall).warnings == ()


# --- gaps ---


@pytest.mark.parametrize("missing", ["error", "drop"])
def test_a_column_of_gaps_is_named(tmp_path: Path, missing: str) -> None:
    typed = in_memory(pa.table({"x": X, "e": pa.nulls(N, pa.float64())}))
    text = open_table(csv(tmp_path / "t.csv", x=X, e=[""] * N))
    for table in (typed, text):
        assert "column 'e' has no values at all; leave it out" in refused(table, "--drop e", missing=missing)


@pytest.mark.parametrize("missing", ["error", "drop"])
def test_gaps_in_every_row_do_not_suggest_dropping_rows(missing: str) -> None:
    columns = {name: [None if i % 4 in places else float(i) for i in range(N)] for name, places in GAPS.items()}
    said = refused(in_memory(pa.table({"w": X, **columns})), "--drop b", missing=missing)
    assert "every row lacks a value, in 'a' (75), 'b' (150), 'c' (75)" in said
    assert "leave out the emptiest column" in said


GAPS = {"a": (0,), "b": (1, 2), "c": (3,)}


def test_rows_left_out_are_counted_with_their_cells() -> None:
    a = [None if i % 5 == 0 else float(i) for i in range(N)]
    b = [None if i % 10 == 0 else float(i) for i in range(N)]
    table = in_memory(pa.table({"x": X, "a": a, "b": b}))
    found = infer(table, TableOptions(missing="drop"))
    assert (found.rows, found.dropped, found.lost) == (240, 60, 90)
    assert "60 of 300 rows lack a value and are left out, 90 values in all" in " ".join(found.notes)
    with pytest.raises(
        TableError,
        match=r"60 rows lack a value, in 'a' \(60\), 'b' \(30\); fit a model of columns, or leave such rows out",
    ):
        infer(table)


# --- copies across the split ---


def copies_by_comparing(rows: list[tuple[Any, ...]], split: Split) -> tuple[int, int]:
    parts = split.parts_of(np.arange(len(rows)))
    trained = [row for row, part in zip(rows, parts, strict=True) if part == 0]
    held_out = [row for row, part in zip(rows, parts, strict=True) if part]
    return sum(row in trained for row in held_out), len(held_out)


def test_copies_across_the_split_are_counted() -> None:
    x = RNG.permutation(np.concatenate([X, X]))
    sign = np.where(x > 0, 1, -1)
    table = in_memory(pa.table({"x": x, "sign": sign}))
    split = Split(3)
    found = infer(table, split=split)
    parts = load_parts(table, FlowEncoder(found.schema), split, "error", found.rows)
    copied = copied_rows(parts.train, parts[1:])
    expected, held_out = copies_by_comparing(list(zip(x, sign, strict=True)), split)
    assert 0 < expected < held_out
    assert (copied.held_out, copied.copies) == (held_out, expected)
    message = str(copied.message())
    assert f"{expected} of {held_out} validation and test rows are exact copies of training rows" in message


def test_copies_are_found_despite_weights_and_only_within_the_table() -> None:
    table = in_memory(pa.table({"x": np.repeat(X, 2), "w": np.arange(2.0 * N) + 1}))
    found = infer(table, TableOptions(weights="w"))
    parts = load_parts(table, FlowEncoder(found.schema), Split(), "error", found.rows)
    expected, _ = copies_by_comparing([(x,) for x in np.repeat(X, 2)], Split())
    assert copied_rows(parts.train, parts[1:]).copies == expected
    plain = in_memory(pa.table({"x": X, "y": X[::-1].copy()}))
    found = infer(plain)
    parts = load_parts(plain, FlowEncoder(found.schema), Split(), "error", N)
    assert copied_rows(parts.train, parts[1:]).message() is None


def test_copies_in_a_table_with_few_possible_rows_are_explained() -> None:
    """Three columns of two numbers have only eight different rows, so every test row is a copy."""
    every = list(itertools.product([0, 1], repeat=3)) * 30
    columns = dict(zip("abc", map(list, zip(*every, strict=True)), strict=True))
    table = in_memory(pa.table(columns))
    found = infer(table)
    parts = load_parts(table, FlowEncoder(found.schema), Split(), "error", found.rows)
    assert str(copied_rows(parts.train, parts[1:]).message()).endswith(
        "rows repeat in this table, only 8 held-out rows are distinct"
    )


# --- resuming with another table ---

SMALL = {"steps": 3, "progress": False, "seed": 0}
TINY = {"num_layers": 1, "hidden_features": 4}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun")
    sign = np.where(X > 0, 1, -1)
    fit_table(csv(folder / "t.csv", x=X, y=X**2, sign=sign), folder / "run", settings=TINY, model="flow", **SMALL)
    return folder


def test_resuming_with_other_columns_names_them(begun: Path, tmp_path: Path) -> None:
    other = csv(tmp_path / "other.csv", x=X, z=X**2)
    with pytest.raises(RunFolderError) as error:
        fit_table(other, begun / "run", settings=TINY, model="flow", resume=True, **SMALL)
    said = str(error.value)
    assert f"{begun / 'run'} was started with another table, {begun / 't.csv'}" in said
    assert "the new table has no column 'y', 'sign'; column 'z' is new" in said
    assert "flow." not in said
    assert "features" not in said


def test_resuming_with_columns_of_another_kind_or_role_is_refused(begun: Path) -> None:
    options = TableOptions(drop=("y",), context=("x",))
    said = r"column 'x' was real and is real \(context\); column 'y' was real and is dropped"
    with pytest.raises(RunFolderError, match=said):
        fit_table(begun / "t.csv", begun / "run", options, TINY, model="flow", resume=True, **SMALL)


def test_resuming_with_other_rows_is_refused(begun: Path, tmp_path: Path) -> None:
    lines = (begun / "t.csv").read_text().splitlines(keepends=True)
    other = tmp_path / "other.csv"
    other.write_text("".join(lines[:201]))
    with pytest.raises(RunFolderError, match="it has the same columns but other rows"):
        fit_table(other, begun / "run", settings=TINY, model="flow", resume=True, **SMALL)


def test_resuming_with_the_same_table_continues(begun: Path) -> None:
    again = fit_table(begun / "t.csv", begun / "run", settings=TINY, model="flow", resume=True, **SMALL)
    assert again.fit.steps == 3


def test_a_run_of_an_older_version_can_be_resumed(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun / "run", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    del config["table"]["marginals"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    again = fit_table(begun / "t.csv", tmp_path / "run", settings=TINY, model="flow", resume=True, **SMALL)
    assert again.fit.steps == 3
    assert again.fitted.encoder.independent is None


def test_a_fit_reports_its_warnings(tmp_path: Path) -> None:
    said: list[str] = []
    table = csv(tmp_path / "t.csv", x=[*X, *X], name=[f"n{i % 250}" for i in range(N)] * 2)
    options = TableOptions(context=("name",))
    fit_table(table, tmp_path / "run", options, TINY, model="flow", say=said.append, **SMALL)
    warnings = [line for line in said if line.startswith("warning: ")]
    assert len(warnings) == 2
    assert "'name' holds 250 different words" in warnings[0]
    assert "exact copies of training rows, so their scores partly show what was memorised" in warnings[1]


def test_nul_bytes_below_a_header_of_four_bytes_are_not_in_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_bytes(b"a,b\n1,x\0y\n2,z\n")
    with pytest.raises(TableError, match="NUL") as caught:
        infer(open_table(path))
    assert "first line" not in str(caught.value)
