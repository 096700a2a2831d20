"""FittedTable in other programs: it takes Arrow batches, and returns scores and rows."""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.helpers import processes

import cubicflow as cf
from cubicflow.tables import FittedTable, TableError, TableOptions, fit_table, open_table

ROWS = 120
SMALL = {"num_layers": 2, "hidden_features": 8}
TRAINING = {"model": "flow", "steps": 5, "device": "cpu", "progress": False}


def rows() -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "word": rng.choice(["ash", "oak"], ROWS).tolist(),
            "height": rng.normal(20, 3, ROWS),
            "price": np.round(rng.gamma(2.0, 3.0, ROWS), 2),
            "rings": rng.poisson(9, ROWS),
            "tall": rng.random(ROWS) < 0.4,
            "felled": [dt.date(2024, 1, 1) + dt.timedelta(days=int(day)) for day in rng.integers(0, 99, ROWS)],
            "planet": ["earth"] * ROWS,
        }
    )


def numbers() -> pa.Table:
    """Return the columns that a flow can model."""
    return rows().drop_columns(["word", "tall"])


def fit(folder: Path, table: pa.Table, options: TableOptions | None = None) -> FittedTable:
    table.to_pandas().to_csv(folder / "trees.csv", index=False)
    fit_table(folder / "trees.csv", folder / "run", options, SMALL, **TRAINING)
    return FittedTable.load(folder / "run")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    return fit(tmp_path_factory.mktemp("fitted"), numbers())


@pytest.fixture(scope="module")
def conditional(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    options = TableOptions(context=("word", "rings", "felled", "tall"), weights="price")
    return fit(tmp_path_factory.mktemp("conditional"), rows(), options)


def test_scores_of_batches_equal_those_of_the_file(fitted: FittedTable) -> None:
    """Rows from the text of a file and rows from Arrow batches of any size have the same scores."""
    from_file = np.concatenate([scores.log_likelihood for scores in fitted.score_table(open_table(fitted.source))])
    whole = fitted.score(numbers())
    assert whole.dtype == np.float64
    np.testing.assert_array_equal(whole, from_file)
    pieces = [fitted.score(batch) for batch in numbers().to_batches(max_chunksize=50)]
    np.testing.assert_allclose(np.concatenate(pieces), whole, atol=1e-5)  # float32 sums differ between batch sizes
    assert fitted.score(numbers().slice(0, 0)).shape == (0,)


def test_batches_of_other_libraries_are_accepted(conditional: FittedTable) -> None:
    """Words may be dictionaries or views, numbers may have other widths, and columns may have another order."""
    changed = rows().set_column(0, "word", rows()["word"].dictionary_encode())
    changed = changed.set_column(3, "rings", rows()["rings"].cast(pa.int16())).select(rows().column_names[::-1])
    np.testing.assert_array_equal(conditional.score(changed), conditional.score(rows()))
    views = rows().set_column(0, "word", rows()["word"].cast(pa.string_view()))
    np.testing.assert_array_equal(conditional.score(views), conditional.score(rows()))


def test_rows_that_lack_a_value(fitted: FittedTable) -> None:
    heights = numbers()["height"].to_pylist()
    gappy = numbers().set_column(0, "height", pa.array([None, float("nan"), *heights[2:]]))
    with pytest.raises(TableError, match=r"the batch: 2 rows lack a value, in 'height' \(2\)"):
        fitted.score(gappy)
    scores = fitted.score(gappy, missing="drop")
    assert np.flatnonzero(np.isnan(scores)).tolist() == [0, 1]
    np.testing.assert_allclose(scores[2:], fitted.score(numbers())[2:], atol=1e-5)
    with pytest.raises(TableError, match="missing should be one of error, drop, model, got 'fill'"):
        fitted.score(gappy, missing="fill")


def test_columns_that_do_not_fit_are_refused(fitted: FittedTable, conditional: FittedTable) -> None:
    for model, changed, said in (
        (fitted, numbers().drop_columns("rings"), "column 'rings' is missing"),
        (
            fitted,
            numbers().set_column(0, "height", rows()["word"]),
            r"column 'height' should be real \(double\), is str",
        ),
        (fitted, numbers().set_column(2, "rings", pa.array([0.5] * ROWS)), "values that are not whole numbers"),
        (
            conditional,
            rows().set_column(0, "word", pa.array(["elm"] * ROWS)),
            "holds 'elm', which the fitted table did",
        ),
    ):
        with pytest.raises(TableError, match=said) as refused:
            model.score(changed)
        assert "--" not in str(refused.value)


def test_samples_have_the_columns_of_the_table(fitted: FittedTable) -> None:
    samples = fitted.sample(300, seed=1)
    assert isinstance(samples, pa.Table)
    assert samples.schema.equals(numbers().schema)
    assert samples.equals(fitted.sample(300, seed=1))
    assert not samples.equals(fitted.sample(300, seed=2))
    assert np.isfinite(fitted.score(samples)).all()
    spreads = [fitted.sample(300, temperature=t, seed=1)["height"].to_numpy().std() for t in (0.2, 1.0)]
    assert spreads[0] < spreads[1] / 2
    assert fitted.sample(0).schema.equals(numbers().schema)
    for number in (-1, 2.5, True):
        with pytest.raises(ValueError, match="number of samples must be a whole number"):
            fitted.sample(number)  # type: ignore[arg-type]


def test_samples_accept_python_values_as_context(conditional: FittedTable) -> None:
    values: dict[str, Any] = {"word": "oak", "rings": 7, "felled": dt.date(2024, 2, 1), "tall": True}
    samples = conditional.sample(5, values, seed=0)
    assert [{name: row[name] for name in values} for row in samples.to_pylist()] == [values] * 5
    assert "price" not in samples.column_names  # weights are not sampled
    as_text = {"word": "oak", "rings": "7", "felled": "2024-02-01", "tall": "true"}
    assert samples.equals(conditional.sample(5, as_text, seed=0))
    assert np.isfinite(conditional.score(samples)).all()  # a score needs no weights
    for given, said in (
        ({**values, "word": "elm"}, "holds 'elm', which the fitted table did not"),
        ({"word": "oak"}, "the model is conditional: give a value for 'rings', 'tall', 'felled'"),
        ({**values, "height": 3}, "conditions can be values of its context columns only"),
    ):
        with pytest.raises(TableError, match=said) as refused:
            conditional.sample(5, given)
        assert "--" not in str(refused.value)


@pytest.mark.parametrize("which", ["fitted", "conditional"])
def test_a_pickle_restores_the_model(which: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(which)
    packed = pickle.dumps(model)
    assert b"torch.nn" not in packed  # only plain values and bytes, which every version of torch can read
    again = pickle.loads(packed)
    assert again.schema == model.schema
    assert again.to_json() == model.to_json()
    np.testing.assert_array_equal(again.score(rows()), model.score(rows()))


def score_a_pickle(folder: Path) -> None:
    model = pickle.loads((folder / "model").read_bytes())
    np.save(folder / "scores.npy", model.score(pa.ipc.open_stream(folder / "rows").read_all()))


def test_another_process_needs_only_the_pickle(fitted: FittedTable, tmp_path: Path) -> None:
    """Another process without the run folder scores a batch from an Arrow stream."""
    (tmp_path / "model").write_bytes(pickle.dumps(fitted))
    with pa.ipc.new_stream(tmp_path / "rows", numbers().schema) as stream:
        stream.write_table(numbers())
    assert processes.start(score_a_pickle, tmp_path, log=tmp_path / "log").wait() == 0
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), fitted.score(numbers()), atol=1e-5)


def test_importing_cubicflow_does_not_import_torch_or_pyarrow() -> None:
    script = "import sys, cubicflow as cf\nassert not {'torch', 'pyarrow'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert cf.tables.FittedTable is FittedTable


def test_the_keys_of_the_config_are_stable(fitted: FittedTable) -> None:
    """The table's section has the keys of earlier run folders in their order, and then the marginals."""
    kept = ["source", "fingerprint", "missing", "split", "parts", "schema", "marginals"]
    assert list(fitted.to_json()) == kept
    assert type(fitted.to_json()["missing"]) is str
    frame = pd.DataFrame(fitted.to_json()["schema"])
    assert frame["name"].tolist() == numbers().column_names
    assert frame["kind"].tolist() == ["real", "stepped", "integer", "datetime", "constant"]
