"""Matching of tables with different types and files as matrices, and the sample of large tables."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cubicflow.tables import TableError
from cubicflow.tables.judging.rows import judge_files
from cubicflow.tables.judging.tables import match
from cubicflow.tables.model.rules import codes_of, contradictions, find_dependencies

TIMES = 10  # repetitions; two rows alone are too few


def both(first: pa.Array, second: pa.Array, *words: str) -> tuple[list[float], list[float], bool]:
    """Return two values of each table as numbers, and whether the column holds words."""
    matched = match(
        {name: pa.table({"x": pa.chunked_array([x] * TIMES)}) for name, x in {"a": first, "b": second}.items()}, words
    )
    return (*(matrix[:2, 0].tolist() for matrix in matched.tables), bool(matched.is_word[0]))  # type: ignore[return-value]


MICROSECONDS_A_DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (pa.array([1, 2]), pa.array([1.5, -0.0]), ([1, 2], [1.5, 0], False)),
        (pa.array([1, 2], pa.uint8()), pa.array([Decimal("1.25"), Decimal(3)]), ([1, 2], [1.25, 3], False)),
        (pa.array([1, 2], pa.int16()), pa.array(np.array([1.5, 2], np.float16)), ([1, 2], [1.5, 2], False)),
        (
            pa.array([date(1970, 1, 2), date(1970, 1, 3)]),
            pa.array([datetime(1970, 1, 2, 12), datetime(1970, 1, 1)], pa.timestamp("ns")),
            ([MICROSECONDS_A_DAY, 2 * MICROSECONDS_A_DAY], [1.5 * MICROSECONDS_A_DAY, 0], False),
        ),
        (pa.array([True, False]), pa.array([False, False]), ([1, 0], [0, 0], True)),
        (pa.array(["b", "a"]), pa.array(["c", "b"]).dictionary_encode(), ([1, 0], [2, 1], True)),
        (pa.array(["b", "a"], pa.large_string()), pa.array(["c", "b"]), ([1, 0], [2, 1], True)),
    ],
)
def test_compatible_types_are_matched(first: pa.Array, second: pa.Array, expected: object) -> None:
    assert both(first, second) == expected


def test_numbers_can_be_words() -> None:
    assert both(pa.array([75001, 10]), pa.array([10, 2000]), "x") == ([2, 0], [0, 1], True)
    assert both(pa.array(["10", "x"]), pa.array([10, 9]), "x") == ([0, 2], [0, 1], True)


@pytest.mark.parametrize("array", [pa.array([1.0, 2.0]), pa.array(["a", "b"]), pa.array([True, False])])
def test_a_column_without_values_matches_every_type(array: pa.Array) -> None:
    _, second, _ = both(array, pa.nulls(2))
    assert np.isnan(second).all()
    first, _, _ = both(pa.nulls(2, pa.string()), array)
    assert np.isnan(first).all()


def test_incompatible_types_are_refused() -> None:
    with pytest.raises(TableError, match="'x' holds numbers in a, and dates such as 2020-01-01 in b"):
        both(pa.array([1, 2]), pa.array([date(2020, 1, 1)] * 2))
    with pytest.raises(TableError, match=r"a: column 'x' has the type list.*; leave it out"):
        both(pa.array([[1], [2]]), pa.array([1, 2]))


def test_the_real_table_determines_the_type_of_text(tmp_path: Path) -> None:
    """If all sampled words look like numbers, they are still read as words."""
    paths = [tmp_path / "real.csv", tmp_path / "sampled.csv"]
    pd.DataFrame({"room": ["1", "2", "hall"] * 20, "size": range(60)}).to_csv(paths[0], index=False)
    pd.DataFrame({"size": np.arange(60) + 0.5, "room": ["1", "2", "2"] * 20}).to_csv(paths[1], index=False)
    assert judge_files(*paths).columns["room"] == pytest.approx(2 / 3)
    with pytest.raises(TableError, match=r"holds numbers in .*sampled\.csv, and text such as '1', '2', 'hall' in"):
        judge_files(*paths[::-1])
    assert judge_files(*paths[::-1], words=["room"]).columns["room"] == pytest.approx(2 / 3)


def test_a_fair_sample_of_a_large_table_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubicflow.tables.judging.rows.MOST_ROWS", 500)
    rows = np.arange(3000.0)
    for name, count in (("real", 3000), ("sampled", 400)):
        pq.write_table(pa.table({"x": rows[:count], "y": -rows[:count]}), tmp_path / f"{name}.parquet")
    found = judge_files(tmp_path / "real.parquet", tmp_path / "sampled.parquet")
    assert found.rows == {"real": 500, "sampled": 400}
    assert [note for note in found.notes if "500 of 3,000 rows are judged" in note]
    # A fair sample of the 3000 rows has a share of 2600 / 3000 above all sampled rows.
    assert found.columns["x"] == pytest.approx(400 / 3000, abs=4 * np.sqrt(0.13 * 0.87 / 500))


def test_the_dependencies_of_a_real_table_are_found(real_data: Path) -> None:
    """In the census table, education is a word and a number. There is no other dependency."""
    frames = {part: pd.read_csv(real_data / "tables" / f"adult-{part}.csv.gz") for part in ("train", "test")}
    matched = match({part: pa.Table.from_pandas(frame) for part, frame in frames.items()})
    train, test = codes_of(*matched.tables)
    found = find_dependencies(train)
    assert {tuple(matched.names[place] for place in rule) for rule in found} == {
        ("education", "education-num"),
        ("education-num", "education"),
    }
    assert not any(contradictions(test, train, rule).any() for rule in found)
