"""Marginals compared with scipy and brute force, and gains and gaps compared with their definitions."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from scipy.integrate import quad

from cubicflow.flows.serialization import FlowFileError
from cubicflow.tables import FittedTable, Split, TableError, TableOptions, fit_table, infer, open_table
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.laws.independent import IndependentColumns
from cubicflow.tables.read.table import Table, in_memory
from cubicflow.tables.run.means import Mean
from cubicflow.tables.run.scored_parts import score_parts
from cubicflow.tables.run.verdicts import Score, ScoreOfRows, Used, gap, score_lines, score_warnings, verdict
from cubicflow.tables.schema.plain_rows import PlainRows

RNG = np.random.default_rng(0)
N = 400
SIZES = {"num_layers": 3, "hidden_features": 16}


# --- marginals ---


def alone(values: np.ndarray, weights: np.ndarray | None = None) -> Callable[[np.ndarray], np.ndarray]:
    """Return the log density of a real column on its own."""
    found = IndependentColumns.learn([Real("x", "double")], values[:, None], weights)
    return lambda x: found.log_prob(x[:, None])


@pytest.mark.parametrize("rows", [1, 3, 20, 500])
def test_a_column_on_its_own_has_a_density(rows: int) -> None:
    """A small probability is reserved for values that the column cannot hold."""
    log_density = alone(RNG.standard_t(3, rows))
    ends = np.sinh(np.linspace(-12, 12, 4001))

    def density(x: float) -> float:
        return float(np.exp(log_density(np.array([x]))[0]))

    total = sum(quad(density, a, b, limit=200)[0] for a, b in itertools.pairwise(ends[::100]))
    assert total == pytest.approx(1 - 0.5 / (rows + 1), abs=1e-3)


@pytest.mark.parametrize("truth", [stats.norm(), stats.t(3), stats.expon(), stats.uniform(), stats.lognorm(1.0)])
def test_it_is_close_to_the_true_density(truth: stats.rv_continuous) -> None:
    """The loss against the true density on new rows is a few hundredths of a nat."""
    seen, other = (truth.rvs(size=4000, random_state=np.random.default_rng(i)) for i in range(2))
    lost = truth.logpdf(other) - alone(seen)(other)
    assert -0.03 < lost.mean() < 0.06


def test_weights_act_like_copies_of_rows() -> None:
    values = RNG.standard_normal(200)
    at = np.linspace(-3, 3, 50)
    np.testing.assert_allclose(alone(values, np.full(200, 7.5))(at), alone(values)(at))
    tilted = alone(values, np.exp(2 * values))(at)
    assert abs(at[tilted.argmax()] - 2) < 0.8  # the mode of a normal, tilted by e^2x, is 2


def test_a_column_that_is_mostly_one_value_has_finite_scores() -> None:
    values = np.where(RNG.random(N) < 0.8, 0.0, RNG.exponential(1.0, N))
    assert np.isfinite(alone(values)(np.array([0.0, 1e-12, 3.0, 1e6]))).all()
    assert np.isfinite(alone(np.zeros(N))(np.array([0.0, 1.0]))).all()


def learned(table: Table, options: TableOptions | None = None) -> tuple[PlainRows, IndependentColumns]:
    encoder = PlainRows(infer(table, options).schema)
    batch = next(iter(table.batches()))
    train = Split().parts_of(np.arange(len(batch))) == 0
    return encoder, IndependentColumns.learn(encoder.columns, encoder.read(batch).y[train])


def test_independent_columns_score_in_the_units_of_the_data() -> None:
    """Words, steps and densities, standardised or with a logarithm, agree with frequencies and scipy."""
    word, count = RNG.choice(["a", "b"], 4000, p=[0.8, 0.2]), RNG.poisson(3, 4000)
    length, price = RNG.normal(1000, 50, 4000), RNG.lognormal(3, 1, 4000)
    rows = pa.table({"word": word, "count": count, "length": length, "price": price})
    encoder, independent = learned(in_memory(rows), TableOptions(transforms={"price": "log"}))
    y = encoder.read(rows.combine_chunks().to_batches()[0]).y
    truth = np.log(np.where(word == "a", 0.8, 0.2)) + stats.poisson(3).logpmf(count)
    truth += stats.norm(1000, 50).logpdf(length) + stats.lognorm(1, scale=math.exp(3)).logpdf(price)
    assert abs((truth - independent.log_prob(y)).mean()) < 0.05


def test_steps_have_masses() -> None:
    count = RNG.geometric(0.05, 3000)
    rows = pa.table({"count": count})
    encoder, independent = learned(in_memory(rows))
    codes = np.arange(max(independent.cells["count"].scale.limits[0], -10), 5000)
    total = np.exp(independent.log_prob(codes[:, None])).sum()
    assert total == pytest.approx(1, abs=1e-3)  # a small probability is reserved for values that are no steps
    masses = independent.log_prob(encoder.read(rows.combine_chunks().to_batches()[0]).y)
    assert abs((stats.geom(0.05).logpmf(count) - masses).mean()) < 0.05


def test_independent_columns_survive_json_and_invalid_json_is_refused() -> None:
    rows = pa.table({"size": np.arange(N) % 7, "x": RNG.standard_normal(N)})
    encoder, independent = learned(in_memory(rows))
    kept = json.loads(json.dumps(independent.to_json()))
    assert IndependentColumns.from_json(kept, encoder.columns) == independent
    for wrong in (
        None,
        [],
        {},
        {"cells": {}, "shares": {}},
        {**kept, "cells": {"size": kept["cells"]["size"]}},
        {**kept, "cells": {**kept["cells"], "x": {"form": "words"}}},
        {**kept, "shares": {"size": kept["shares"]["size"]}},
        {**kept, "shares": {**kept["shares"], "x": [0.5]}},
    ):
        with pytest.raises(TableError):
            IndependentColumns.from_json(wrong, encoder.columns)


# --- gains and gaps ---


def test_gains_are_paired_and_gaps_are_not() -> None:
    model, alone, weights = RNG.standard_normal((3, 50))
    weights = np.abs(weights)
    scores = ScoreOfRows()
    for piece in (slice(0, 20), slice(20, 50)):
        scores += ScoreOfRows.of(model[piece], alone[piece], weights[piece])
    score = scores.result()
    assert score.gain is not None
    assert score.gain.mean == pytest.approx(np.average(model - alone, weights=weights))
    found = ScoreOfRows.of(model, alone).result()
    assert found.gain is not None
    assert found.gain.error == pytest.approx(2 * (model - alone).std(ddof=1) / math.sqrt(50))
    difference = gap(found, Score(Mean(10, found.model.mean - 1, 0.5)))
    assert difference.mean == pytest.approx(1)
    assert difference.error == pytest.approx(math.sqrt(found.model.error**2 + 0.25))


def of(mean: float, error: float, gain: float) -> Score:
    return Score(Mean(50, mean, error), Mean(50, mean - gain, error), Mean(50, gain, error))


@pytest.mark.parametrize(
    ("train", "test", "warned"),
    [
        (of(-1.0, 0.1, 4.0), of(-3.0, 0.2, 2.0), True),  # a gap of 9 standard errors and half of the gain
        (of(-1.0, 0.1, 4.0), of(-1.9, 0.2, 3.1), False),  # 8 standard errors, but less than a quarter of the gain
        (of(-1.0, 0.1, 4.0), of(-3.0, 2.0, 2.0), False),  # half of the gain, but only 2 standard errors
        (of(-3.0, 0.1, 2.0), of(-1.0, 0.2, 4.0), False),  # training rows score lower
        (of(-1.0, 0.1, 4.0), Score(Mean(50, -3.0, 0.2)), False),  # no independent columns to compare with
        (of(-1.0, 0.1, 4.0), of(-3.0, math.nan, 2.0), False),  # a single test row
    ],
)
def test_a_large_gap_is_a_warning(train: Score, test: Score, warned: bool) -> None:
    assert any("memorised its training rows" in line for line in score_warnings(test, train)) == warned


def test_a_gap_is_attributed_to_single_columns_if_they_have_it_too() -> None:
    """The gap and the gap of independent columns are 2.0 and 1.5 in the first case, 2.0 and 0.5 in the second."""
    (single,) = score_warnings(of(-3.0, 0.1, 3.5), of(-1.0, 0.1, 4.0))
    assert "it comes from single columns" in single
    (heart,) = score_warnings(of(-3.0, 0.1, 2.5), of(-1.0, 0.1, 4.0))
    assert "memorised its training rows" in heart


def test_a_model_worse_than_independent_columns_is_a_warning() -> None:
    (warning,) = score_warnings(of(-3.0, 0.1, -0.5))
    assert warning.startswith("test rows score 0.500 ± 0.100 nats less than by independent columns")
    assert score_warnings(of(-3.0, 1.0, -0.5)) == []
    assert "the model loses 0.500 ± 0.100 nats a row" in score_lines(of(-3.0, 0.1, -0.5))[0]
    assert verdict(of(-3.0, 0.1, -0.5)) == "Test rows score 0.500 ± 0.100 nats lower than by independent columns."


# --- in a run ---


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fit a table of two strongly dependent columns with one gap."""
    folder = tmp_path_factory.mktemp("honest")
    x = RNG.standard_normal(N)
    y = x + 0.1 * RNG.standard_normal(N)
    lines = [f"{a!r},{b!r}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    (folder / "t.csv").write_text("\n".join(["x,y", *lines, "0.5,"]) + "\n")
    fit_table(folder / "t.csv", folder / "run", TableOptions(missing="drop"), SIZES, steps=150, progress=False, seed=0)
    return folder


def test_the_gain_of_a_normal_pair_is_its_mutual_information(run: Path) -> None:
    """With corr = 1 / sqrt(1.01) the mutual information is -log(1 - corr^2) / 2 = 2.31 nats. A short fit finds most."""
    scored = score_parts(FittedTable.load(run / "run"), open_table(run / "t.csv"))
    gain = scored.parts["test"].gain
    assert gain is not None
    assert 1.2 < gain.mean < 2.31 + gain.error
    assert scored.used == Used(N + 1, N, 2, 1)


def test_values_far_beyond_the_training_rows_are_told_from_the_mean(run: Path, tmp_path: Path) -> None:
    lines = (run / "t.csv").read_text().splitlines()[:101]
    (tmp_path / "near.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "far.csv").write_text("\n".join([*lines, "3e30,0.5", "1,-3e30"]) + "\n")
    how = {"settings": {"hidden_features": 8}, "steps": 2, "validate_every": 1, "progress": False, "seed": 0}
    fitted = fit_table(tmp_path / "near.csv", tmp_path / "run", model="columns", **how).fitted
    near, far = (score_parts(fitted, open_table(tmp_path / name)) for name in ("near.csv", "far.csv"))
    assert near.whole.near is None
    assert near.warnings(is_source=False) == []
    assert far.whole.model.mean < -1e20
    assert far.whole.near is not None
    assert far.whole.near.mean == pytest.approx(near.whole.model.mean)
    assert f"2 of {near.whole.model.rows + 2} rows score below -100,000 nats" in far.warnings(is_source=False)[0]
    assert str(near.whole.model) in far.warnings(is_source=False)[0]


def test_marginals_come_from_training_rows_alone(run: Path, tmp_path: Path) -> None:
    """Other test rows within the range of all rows do not change the marginals."""
    lines = (run / "t.csv").read_text().splitlines()
    for i in np.flatnonzero(Split(0).parts_of(np.arange(N)) == 2):
        lines[i + 1] = "0.123456789,0.123456789"
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    other = fit_table(
        tmp_path / "t.csv", tmp_path / "run", TableOptions(missing="drop"), SIZES, steps=1, progress=False, seed=0
    )
    first = FittedTable.load(run / "run")
    assert other.fitted.encoder.independent is not None
    assert first.encoder.independent is not None
    assert other.fitted.encoder.independent == first.encoder.independent


def test_an_older_run_without_marginals_can_score(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "run", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    kept = config["table"].pop("marginals")
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    older = FittedTable.load(tmp_path / "run")
    scored = score_parts(older, open_table(run / "t.csv"))
    now = score_parts(FittedTable.load(run / "run"), open_table(run / "t.csv"))
    assert scored.whole == Score(now.whole.model)
    config["table"]["marginals"] = {**kept, "cells": {}}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises(FlowFileError, match="the cells and the shares of every column"):
        FittedTable.load(tmp_path / "run")


def test_a_single_column_has_no_gain(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n" + "".join(f"{x!r}\n" for x in RNG.standard_normal(50).tolist()))
    result = fit_table(tmp_path / "t.csv", tmp_path / "run", steps=2, progress=False)
    assert result.fitted.encoder.independent is None
    assert result.score.gain is None
    assert re.fullmatch(
        r"training rows score .* (higher|lower) than test rows", *score_lines(result.score, result.train)
    )
