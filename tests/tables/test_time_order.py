"""Rows in the order of time: the note about them, and the split whose test rows are the latest."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cubicflow.tables import FittedTable, Split, TableError, TableOptions, fit_table, infer, open_table
from cubicflow.tables.read.table import in_memory
from cubicflow.tables.run.scored_parts import score_parts
from cubicflow.tables.schema.split import PARTS, TimeSplit, split_from

N = 100
RNG = np.random.default_rng(0)
X = RNG.standard_normal(N)
START = dt.date(2020, 1, 1)


def days(places: Any) -> list[dt.date]:
    return [START + dt.timedelta(days=int(place)) for place in places]


def table(places: Any, **more: Any) -> in_memory:
    return in_memory(pa.table({"day": days(places), "x": X[: len(places)], **more}))


def order_notes(places: Any, **more: Any) -> list[str]:
    return [note for note in infer(table(places, **more)).notes if "rows are sorted by" in note]


def test_rows_in_order_give_a_note() -> None:
    for places in (np.arange(N), np.arange(N)[::-1], np.arange(N) // 3):
        (note,) = order_notes(places)
        assert note.startswith("rows are sorted by 'day'; the model ignores their order")
        assert note.endswith("split by time:day")
    assert not order_notes(RNG.permutation(N))
    swapped = np.arange(N)
    swapped[[70, 71]] = 71, 70
    assert not order_notes(swapped)
    assert not order_notes(np.zeros(N))


def test_the_order_is_seen_across_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubicflow.tables.read.table.BATCH_ROWS", 10)
    rises = np.concatenate([np.arange(50, N), np.arange(50)])  # decreases once, between two batches
    assert not order_notes(rises)
    assert order_notes(np.arange(N))


def parts_by_hand(places: Any) -> np.ndarray[Any, Any]:
    """Return the parts by definition: the last tenth is the test, the tenth before is validation, ties together."""
    ordered = sorted(places)
    first, second = ordered[int(0.8 * len(places))], ordered[int(0.9 * len(places))]
    return np.array([0 if place < first else 1 if place < second else 2 for place in places])


@pytest.mark.parametrize(
    "places", [np.arange(N), np.arange(N)[::-1], np.arange(N) // 3, np.arange(N)[::-1] // 7, np.arange(N) ** 2]
)
def test_the_latest_rows_are_the_test_rows(places: Any) -> None:
    split = TimeSplit(0, "day").resolved(table(places))
    found = split.parts_of(np.arange(N))
    assert found.tolist() == parts_by_hand(places).tolist()
    assert Split.from_json(json.loads(json.dumps(split.to_json()))) == split
    inferred = infer(table(places), split=TimeSplit(0, "day"))
    assert list(inferred.parts.values()) == np.bincount(found).tolist()
    assert not any("rows are sorted by" in note for note in inferred.notes)


def test_a_dropped_column_can_define_the_split() -> None:
    found = infer(table(np.arange(N)), TableOptions(drop=("day",)), TimeSplit(0, "day"))
    assert found.schema["day"].role == "dropped"
    assert list(found.parts.values()) == [80, 10, 10]


@pytest.mark.parametrize(
    ("data", "column", "message"),
    [
        (table(RNG.permutation(N)), "day", r"rows are not sorted by column 'day': row \d+ is earlier"),
        (
            table(np.arange(N), w=["a", "b"] * 50),
            "w",
            "column 'w' holds string; a split by time needs dates or numbers",
        ),
        (table(np.arange(N)), "date", "there is no column 'date' to split by; the columns are 'day', 'x'"),
        (table(np.arange(N) // 60), "day", "too few different times"),
        (table(np.arange(N), t=[None, *range(N - 1)]), "t", "row 1 has no time in column 't'"),
    ],
)
def test_impossible_splits_are_refused(data: in_memory, column: str, message: str) -> None:
    with pytest.raises(TableError, match=message):
        infer(data, split=TimeSplit(0, column))


def test_invalid_split_options_are_refused() -> None:
    for text in ("day", "time:", "", "space:day"):
        with pytest.raises(TableError, match="split should be time: and the name of a column"):
            split_from(text, 0)
    good = TimeSplit(0, "day", (8, 9)).to_json()
    for change in ({"starts": [9, 8]}, {"starts": [1]}, {"starts": None}, {"column": 3}, {"newest_first": 0}):
        with pytest.raises(TableError, match="the section on the split has"):
            Split.from_json({**good, **change})


def test_a_run_saves_its_split(tmp_path: Path) -> None:
    """The score of the test part equals the score of the same rows selected by hand."""
    path = tmp_path / "t.csv"
    lines = [f"{day:%d.%m.%Y},{x:.6f},{i % 3}" for i, (day, x) in enumerate(zip(days(np.arange(N)), X, strict=True))]
    path.write_text("day,x,k\n" + "\n".join(lines) + "\n")
    how: dict[str, Any] = {"settings": {"hidden_features": 8}, "steps": 3, "progress": False}
    fit_table(path, tmp_path / "run", TableOptions(drop=("day",)), split="time:day", **how)
    fitted = FittedTable.load(tmp_path / "run")
    assert fitted.parts == dict(zip(PARTS, (80, 10, 10), strict=True))
    scored = score_parts(fitted, open_table(path, fitted.reading))
    alone = fitted.score(pa.table({"x": [float(f"{x:.6f}") for x in X[90:]], "k": [i % 3 for i in range(90, N)]}))
    assert scored.parts["test"].model.mean == pytest.approx(alone.mean())
