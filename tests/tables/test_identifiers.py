"""Columns that only name their rows are left out with one note; other whole numbers that never repeat are warned of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.helpers.options import option_of

from cubicflow.cli.terminal import as_options
from cubicflow.tables import FittedTable, TableError, TableOptions, fit_table, infer, open_table
from cubicflow.tables.kinds.facts import Facts
from cubicflow.tables.read.table import in_memory
from cubicflow.tables.schema.inference import Inferred
from cubicflow.tables.schema.remarks import identifies
from cubicflow.training import TrainingError

RNG = np.random.default_rng(0)
ROWS = 120
IDENTIFIERS = {
    "row": np.arange(ROWS),
    "shuffled": RNG.permutation(ROWS) + 1,
    "with_gaps": np.sort(RNG.permutation(2 * ROWS)[:ROWS]) + 5_000,
    "email": [f"{i:04x}@example.org" for i in range(ROWS)],
    "comment": [f"text {i}" if i % 40 == 0 else None for i in range(ROWS)],
    "hash": RNG.integers(-(2**62), 2**62, ROWS),
}
MEASURED = {
    "size": np.round(RNG.normal(size=ROWS), 2),
    "word": RNG.choice(["ash", "oak"], ROWS),
    "income": np.unique(RNG.integers(20_000, 90_000, 2 * ROWS))[:ROWS],
    "tens": 10 * np.arange(ROWS),
    "count": RNG.integers(0, 60, ROWS),
    "day": pd.date_range("2024-01-01", periods=ROWS),
    "real": RNG.normal(size=ROWS),
    "whole_reals": np.arange(ROWS, dtype=np.float64),
}


def inferred(columns: dict[str, Any], **options: Any) -> Inferred:
    rows = in_memory(pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False))
    return infer(rows, TableOptions(**{"missing": "model", **options}), leave_out_identifiers=True)


def roles(found: Inferred) -> dict[str, str]:
    return {column.name: column.role for column in found.schema.columns}


def test_identifiers_are_left_out_with_one_note() -> None:
    found = inferred(IDENTIFIERS | MEASURED)
    assert roles(found) == dict.fromkeys(IDENTIFIERS, "dropped") | dict.fromkeys(MEASURED, "model")
    (note,) = [note for note in found.notes if "identifier" in note]
    assert all(f"{name!r} (" in note for name in IDENTIFIERS)
    assert as_options(note).endswith("; to model one anyway, keep it with --keep row")
    (warning,) = [text for text in found.warnings if "never repeat" in text]
    assert warning.startswith("'income', 'tens': whole numbers that never repeat; ")
    assert as_options(warning).endswith("with --drop income,tens")
    assert found.gaps == {}  # the gaps of a column that is left out do not count


@pytest.mark.parametrize("options", [{"keep": ["row", "email"]}, {"kinds": {"row": "integer", "email": "categorical"}}])
def test_a_column_that_an_option_names_is_modelled(options: dict[str, Any]) -> None:
    found = inferred(IDENTIFIERS | MEASURED, **options)
    assert [name for name in IDENTIFIERS if found.schema[name].role == "model"] == ["row", "email"]
    assert not any("'row'" in text for text in found.warnings)
    assert len(found.schema["email"].labels) == ROWS


def test_what_cannot_be_modelled_is_refused_even_if_it_is_kept() -> None:
    with pytest.raises(TableError, match="spans more than 2\\^53 steps"):
        inferred({"hash": IDENTIFIERS["hash"], "size": MEASURED["size"]}, keep=["hash"])
    with pytest.raises(TableError, match="is named in both keep and drop"):
        TableOptions(keep=("a",), drop=("a",))
    with pytest.raises(TableError, match="there is no column 'nome'"):
        inferred(MEASURED, keep=["nome"])


def test_many_different_texts_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubicflow.tables.kinds.facts.MOST_WORDS", 50)
    columns = {"name": [f"n{i % 60}" for i in range(ROWS)], "size": MEASURED["size"]}
    found = inferred(columns)
    assert roles(found) == {"name": "dropped", "size": "model"}
    assert "'name' (more than 50 different texts)" in found.notes[0]
    with pytest.raises(TableError, match="holds more than 50 words"):
        inferred(columns, keep=["name"])


def test_a_row_that_lacks_only_an_identifier_is_used() -> None:
    columns = {"comment": IDENTIFIERS["comment"], "size": MEASURED["size"]}
    found = inferred(columns, missing="drop")
    assert (found.rows, found.dropped, found.lost) == (ROWS, 0, 0)


def test_nothing_but_identifiers() -> None:
    with pytest.raises(
        TableError, match="nothing is left to model: every column looks like an identifier, 'row'"
    ) as error:
        inferred({"row": IDENTIFIERS["row"], "email": IDENTIFIERS["email"]})
    assert option_of(error.value) == "--keep row"
    with pytest.raises(TableError, match="every column is constant, context, weights or an identifier"):
        inferred({"row": IDENTIFIERS["row"], "one": np.ones(ROWS)})


@pytest.mark.parametrize("rows", [12, 19])
def test_a_few_numbers_are_not_taken_for_identifiers(rows: int) -> None:
    found = inferred({"month": np.arange(rows) + 1, "sales": RNG.normal(size=rows)})
    assert roles(found)["month"] == "model"
    assert not any("never repeat" in text for text in found.warnings)


@pytest.mark.parametrize("batch", [1, 7, 64])
@pytest.mark.parametrize("repeats", [False, True])
def test_repeats_are_found_across_batches(batch: int, repeats: bool) -> None:
    values = np.arange(64)
    values[-1] = 0 if repeats else 63
    facts = Facts("n", pa.int64())
    for start in range(0, 64, batch):
        facts.see_some(pa.array(values[start : start + batch]))
    assert facts.never_repeats is not repeats
    assert (identifies(facts) is None) is repeats


def test_chance_alone_hardly_makes_an_identifier() -> None:
    """Numbers drawn at random from twice as many values are taken for an identifier in fewer than one draw in 200."""
    rng = np.random.default_rng(1)
    taken = 0
    for _ in range(1_000):
        facts = Facts("n", pa.int64())
        facts.see_some(pa.array(rng.integers(0, 40, 20)))
        taken += identifies(facts) is not None
    assert taken < 5


def test_a_fit_keeps_words_that_never_repeat(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    pd.DataFrame({name: (IDENTIFIERS | MEASURED)[name] for name in ("row", "email", "size")}).to_csv(path, index=False)
    small: dict[str, Any] = {"settings": {"hidden_features": 4}, "progress": False, "steps": 2, "seed": 0}
    said: list[str] = []
    left = fit_table(path, tmp_path / "left", say=said.append, **small).fitted
    assert left.sample(3, seed=0).schema.names == ["size"]
    assert any("identifiers are left out: 'row' " in line and "'email' " in line for line in said)
    scores = FittedTable.load(tmp_path / "left").score(pa.table({"size": MEASURED["size"]}))  # without identifiers
    with_identifiers = np.concatenate([batch.column(0) for batch in left.score_batches(open_table(path))])
    np.testing.assert_allclose(scores, with_identifiers)
    kept = fit_table(path, tmp_path / "kept", TableOptions(keep=("row", "email")), **small).fitted
    assert set(kept.sample(50, seed=0).column("email").to_pylist()) <= {f"{i:04x}@example.org" for i in range(ROWS)}


def test_a_fit_to_nothing_but_words_that_never_repeat(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    pd.DataFrame({name: IDENTIFIERS[name] for name in ("email", "row")}).to_csv(path, index=False)
    small: dict[str, Any] = {"settings": {"hidden_features": 4}, "progress": False, "steps": 2, "seed": 0}
    with pytest.raises(TrainingError, match="nothing to train; a table needs a column of numbers"):
        fit_table(path, tmp_path / "run", TableOptions(keep=("email",)), **small)
