"""Errors of bad files: one line that names the file and the remedy."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers.options import message_with_options

from cubicflow.tables import Reading, Split, TableError, TableOptions, fit_table, infer, open_table
from cubicflow.tables.read.table import in_memory

GOOD = "a,b\n" + "\n".join(f"{i},{i * 0.5}" for i in range(30)) + "\n"


def refusal(path: Path, **options: object) -> str:
    with pytest.raises(TableError) as error:
        infer(open_table(path), TableOptions(**options))  # type: ignore[arg-type]
    assert str(path) in str(error.value)
    assert "--" not in str(error.value)
    return message_with_options(error.value)


def write(folder: Path, text: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("\n\n", "first line is empty"),
        ("a,b\n", "no rows"),
        ("a,b\n1,2\n", "1 complete row "),
        ("a,a\n1,2\n", "more than one column is called 'a'"),
        ("a,,c\n1,2,3\n", "column 2 of 3 has no name"),
        ("1.5,2.5\n1,2\n", "is it a row of the table, or does it hold the names?"),
        (GOOD + "1,2,3\n", "not every line has the header's 2 columns"),
        (GOOD + "1\n", "not every line has the header's 2 columns"),
        (
            GOOD + "7,\n8,NA\n",
            r"2 rows lack a value, in 'b' (2); fit a model of columns, or leave such rows out with --missing drop",
        ),
        (GOOD + "7,inf\n", "column 'b' holds 1 infinite value"),
        (GOOD + "7,1e300\n", "values as large as 1e+300"),
        (GOOD + "7,-1e300\n", "values as large as 1e+300"),
        ("id\n" + "\n".join(f"name {chr(65 + i)}" for i in range(20)), "every value is different"),
        ("id\n" + "\n".join(f"{i}.03.24" for i in range(10, 30)), "write them as 1234.5 and 2024-12-31"),
        ("a,b\n" + "3,x\n" * 30, "every column is constant"),
        ("a,b\n" + "\n".join(f"{i}," for i in range(30)), "column 'b' has no values at all"),
    ],
)
def test_bad_csv_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(write(tmp_path, text))


def test_wrong_encodings_are_named(tmp_path: Path) -> None:
    latin = GOOD.replace("b", "grö\u00dfe").encode("latin-1")
    assert "line 1 holds the byte 0xf6" in refusal(write(tmp_path, latin))
    later = "a,b\n" + "\n".join(f"{i},caf\u00e9" if i == 7 else f"{i},tea" for i in range(30))
    assert "line 9 holds the byte 0xe9" in refusal(write(tmp_path, later.encode("latin-1")))
    assert "UTF-16" in refusal(write(tmp_path, GOOD.encode("utf-16")))
    assert infer(open_table(write(tmp_path, GOOD.encode("utf-8-sig")))).schema.columns[0].name == "a"


def test_paths_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, said in (
        (tmp_path / "none.csv", "no such file"),
        (tmp_path / "empty", "this folder holds no .parquet file"),
        (write(tmp_path, GOOD, "table.dat"), "unknown kind of table"),
        (write(tmp_path, GOOD, "table.xlsx"), "not a readable workbook"),
        (write(tmp_path, GOOD, "table.feather"), "not a complete Arrow file"),
        (write(tmp_path, GOOD, "table.jsonl"), "not lines of JSON"),
        (write(tmp_path, GOOD, "table.parquet"), "not a complete Parquet file"),
        (write(tmp_path, GOOD, "table.npy"), "not a readable NumPy file"),
        (write(tmp_path, GOOD, "table.npz"), "not a readable NumPy file"),
        (write(tmp_path, GOOD, "table.csv.gz"), "cannot be read"),
    ):
        assert said in refusal(path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_and_compression(tmp_path: Path, delimiter: str) -> None:
    path = write(tmp_path, gzip.compress(GOOD.replace(",", delimiter).encode()), "table.csv.gz")
    assert [column.kind for column in infer(open_table(path)).schema.columns] == ["integer", "stepped"]


def test_quoted_newlines_and_delimiters_are_values(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b\n" + '1,"x, y"\n2,"two\nlines"\n' * 10)
    assert set(infer(open_table(path, Reading(allow_multiline=True))).schema["b"].levels) == {"x, y", "two\nlines"}


def test_a_type_is_decided_by_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column holds numbers for many rows and then a word, long after the first blocks have been read."""
    monkeypatch.setattr("cubicflow.tables.read.text.lines.BLOCK_BYTES", 4096)
    path = write(tmp_path, "a,b\n" + "1,2\n2,3\n" * 20_000 + "x,2.5\n" * 2)
    schema = infer(open_table(path)).schema
    assert set(schema["a"].levels) == {"1", "2", "x"}
    assert schema["b"].kind == "stepped"


def test_one_column_is_enough(tmp_path: Path) -> None:
    path = write(tmp_path, "a\n" + "\n".join(f"{i / 7:.9f}" for i in range(50)))
    assert infer(open_table(path)).schema["a"].kind == "real"


def test_codes_with_leading_zeros_stay_words(tmp_path: Path) -> None:
    path = write(tmp_path, "zip\n" + "01234\n98765\n" * 10)
    assert set(infer(open_table(path)).schema["zip"].levels) == {"01234", "98765"}


def test_parquet_folders(tmp_path: Path) -> None:
    table = pa.table({"a": list(range(20)), "b": [0.1 * i for i in range(20)]})
    pq.write_table(table.slice(0, 12), tmp_path / "1.parquet")
    pq.write_table(table.slice(12), tmp_path / "2.parquet")
    found = pa.Table.from_batches(open_table(tmp_path).batches(rows=5))
    assert found.equals(table)
    pq.write_table(table.rename_columns(["a", "c"]), tmp_path / "3.parquet")
    assert "not parts of one table: 3.parquet lacks 'b' and adds 'c'" in refusal(tmp_path)
    pq.write_table(table.cast(pa.schema({"a": pa.int32(), "b": pa.float64()})), tmp_path / "3.parquet")
    assert "column 'a' is int64 in 1.parquet and int32 in 3.parquet" in refusal(tmp_path)


def test_text_kept_as_views(tmp_path: Path) -> None:
    words = ["a", "", "a longer word than twelve", None, "a"]
    pq.write_table(pa.table({"w": pa.array(words, pa.string_view())}), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    (batch,) = table.batches()
    assert table.types["w"] == batch.column("w").type == pa.large_string()
    assert batch.column("w").to_pylist() == words
    assert batch.column("w").take(pa.array([2, 0])).to_pylist() == ["a longer word than twelve", "a"]


def test_parquet_columns_of_unsupported_types_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": list(range(20)), "l": [[1]] * 20}), path)
    assert "--drop l" in refusal(path)
    assert infer(open_table(path), TableOptions(drop=("l",))).schema["l"].role == "dropped"
    pq.write_table(pa.table({"a": pa.array([2**64 - 1 - i for i in range(20)], pa.uint64())}), path)
    assert "beyond 2^63" in refusal(path)
    pq.write_table(pa.table({"a": [(-1) ** i * (2**62 + i) for i in range(20)]}), path)
    assert "spans more than 2^53 steps" in refusal(path)
    pq.write_table(pa.table({"a": list(range(20)), "n": pa.nulls(20)}), path)
    assert "no values at all" in refusal(path)


def test_numpy_tables(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((30, 2))
    np.save(tmp_path / "x.npy", x.astype(">f8"))
    (batch,) = open_table(tmp_path / "x.npy").batches()
    assert batch.schema.names == ["x0", "x1"]
    np.testing.assert_array_equal(batch.column("x1"), x[:, 1])
    np.save(tmp_path / "x.npy", x[:, 0])
    assert open_table(tmp_path / "x.npy").names == ["x0"]
    np.savez(tmp_path / "x.npz", a=x[:, 0], b=np.arange(30))
    assert open_table(tmp_path / "x.npz").names == ["a", "b"]
    for arrays, said in (
        ({"a": x, "b": x}, "must have one dimension"),
        ({"a": x[:3, 0], "b": x[:, 0]}, "their lengths differ"),
        ({"a": x[None]}, "expected an array (rows, columns)"),
        ({"a": x[:, :0]}, "no columns"),
        ({"a": x + 1j}, "holds complex128"),
        ({}, "holds no array"),
    ):
        np.savez(tmp_path / "x.npz", **arrays)
        assert said in refusal(tmp_path / "x.npz")
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "never loads" in refusal(tmp_path / "o.npy")


def test_numpy_files_are_recognised_by_their_bytes(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros((3, 2)))
    np.savez(tmp_path / "several.npz", a=np.arange(3), b=np.ones(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    (tmp_path / "several.npz").rename(tmp_path / "several.npy")
    assert open_table(tmp_path / "one.npz").names == ["x0", "x1"]
    batch = next(open_table(tmp_path / "several.npy").batches())
    assert batch.to_pydict() == {"a": [0, 1, 2], "b": [1.0, 1.0, 1.0]}


def test_a_fingerprint_identifies_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    before = open_table(path).fingerprint()
    assert before == open_table(write(tmp_path, GOOD, "copy.csv")).fingerprint()
    assert before != open_table(write(tmp_path, GOOD.replace("29,", "28,"))).fingerprint()


def test_all_line_ends_are_accepted(tmp_path: Path) -> None:
    expected = infer(open_table(write(tmp_path, GOOD))).schema
    for end in ("\r", "\r\n"):
        assert infer(open_table(write(tmp_path, GOOD.replace("\n", end)))).schema == expected
    header = "a" * 200_000
    assert "not a row of column names: field larger" in refusal(write(tmp_path, f"{header},b\n1,2\n"))


def test_delimiters_in_quotes_do_not_count(tmp_path: Path) -> None:
    rows = "\n".join(f"{i};{i / 8}" for i in range(30))
    table = open_table(write(tmp_path, f'"mass, kg";"height ""h"", m"\n{rows}\n'))
    assert table.names == ["mass, kg", 'height "h", m']
    assert infer(table).schema["mass, kg"].kind == "integer"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["3", "17", "?"], "'c' is read as words: '?' is not a number; write numbers as 1234.5, and leave missing"),
        (["3", "4.5", "7", "1,5"], "'1,5' is not a number"),
        (["1,5", "2 - 3"], "write them as 1234.5 and 2024-12-31"),
        (["12%", "$3"], "write them as 1234.5"),
        (["31/12/24", "01/02/25"], "write them as 1234.5 and 2024-12-31"),
        (["red", "green"], None),
        (["red", "7"], None),
        (["01234", "98765", "45678"], None),
    ],
)
def test_words_that_are_nearly_numbers_give_a_note(tmp_path: Path, words: list[str], said: str | None) -> None:
    lines = "".join(f'{i / 7},"{words[i % len(words)]}"\n' for i in range(40))
    path = write(tmp_path, "x,c\n" + lines)
    found = infer(open_table(path))
    assert found.schema["c"].kind == "categorical"
    assert said in " ".join(found.notes) if said else not found.notes
    assert not infer(open_table(path), TableOptions(kinds={"c": "categorical"})).notes


def test_the_row_index_of_pandas_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    frame = pd.DataFrame({"a": np.arange(50.0) ** 2}, index=np.random.default_rng(0).permutation(50))
    frame.to_parquet(path)
    table = open_table(path)
    assert "__index_level_0__" in table.names
    found = infer(table)
    assert found.schema["__index_level_0__"].role == "dropped"
    assert "'__index_level_0__' is a row index that pandas wrote with the table; it is left out" in found.notes
    frame.reset_index(drop=True).to_parquet(path)
    plain = open_table(path)
    assert found.schema.check(plain) == ["a"]
    assert infer(plain).schema.check(table) == ["a"]
    assert "every column is dropped" in refusal(path, drop=("a",))


def test_decimals_of_any_width(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    values = pa.array([f"{i / 4:.2f}" for i in range(50)])
    for type in (pa.decimal32(4, 2), pa.decimal64(18, 2), pa.decimal256(76, 2)):
        pq.write_table(pa.table({"a": values.cast(type)}), path)
        assert infer(open_table(path)).schema["a"].kind == "stepped"
    table = in_memory(pa.table({"a": pa.array(range(100, 5100, 100)).cast(pa.decimal128(38, 0)), "b": range(50)}))
    table.types["a"] = pa.decimal128(4, -2)
    with pytest.raises(TableError, match=r"'a' \(decimal128\(4, -2\)\)"):
        infer(table)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.csv")
    assert "read several times, and a pipe only once; save it as a file first" in refusal(tmp_path / "t.csv")


def test_weights_that_are_zero_in_all_training_rows_are_refused(tmp_path: Path) -> None:
    train = Split().parts_of(np.arange(40)) == 0
    for weights, said in ((np.where(train, 0, 1), "all zero in the training rows"), (np.zeros(40), "all 0.0")):
        lines = "".join(f"{i / 7},{weight}\n" for i, weight in enumerate(weights))
        assert said in refusal(write(tmp_path, "x,w\n" + lines), weights="w")


@pytest.mark.parametrize("model", ["columns", "flow"])
def test_huge_whole_numbers_are_warned_of_and_samples_stay_whole(tmp_path: Path, model: str) -> None:
    texts = [*map(str, range(100)), str(2**63 + 5000), str(2**64 + 12345)]
    path = write(tmp_path, "a,b\n" + "".join(f"{text},{i % 7}\n" for i, text in enumerate(texts)))
    said: list[str] = []
    small: Any = {"settings": {"hidden_features": 4}, "say": said.append, "progress": False, "steps": 2, "seed": 0}
    fitted = fit_table(path, tmp_path / "run", model=model, **small).fitted
    (warning,) = [line for line in said if line.startswith("warning: 'a' holds whole numbers as large as 1.84467e+19")]
    assert "it is modelled as real numbers, so samples lie also between and below its values" in warning
    drawn = fitted.sample(200, seed=0)["a"].to_numpy()
    np.testing.assert_array_equal(drawn, np.round(drawn))


@pytest.mark.parametrize("low", [0.5, 2.0**53])
def test_large_measurements_are_not_taken_for_whole_numbers(low: float) -> None:
    """All doubles from 2^53 on are whole, so only smaller ones show that a column counts something."""
    rng = np.random.default_rng(0)
    found = infer(in_memory(pa.table({"a": low + rng.uniform(0, 1e20, 60), "b": rng.normal(size=60)})))
    assert found.warnings == ()
    assert found.schema["a"].decimals is None
