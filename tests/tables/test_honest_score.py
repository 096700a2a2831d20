"""Marginals compared with scipy and brute force, and gains and gaps compared with their definitions."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from scipy.integrate import quad

from cubicflow.flows.serialization import FlowFileError
from cubicflow.tables import FittedTable, Split, TableEncoder, TableError, TableOptions, fit_table, infer, open_table
from cubicflow.tables.independent import IndependentColumns, QuantileCurve, fit_quantile_curve
from cubicflow.tables.likelihood import Mean
from cubicflow.tables.maps import CodeCounts, Histogram, histogram_of_codes
from cubicflow.tables.read.table import in_memory
from cubicflow.tables.run.scored_parts import score_parts
from cubicflow.tables.run.verdict import Score, ScoreOfRows, Used, gap, score_lines, score_warnings, verdict

RNG = np.random.default_rng(0)
N = 400
SIZES = {"num_layers": 3, "hidden_features": 16}


# --- marginals ---


@pytest.mark.parametrize("rows", [1, 3, 20, 500])
def test_a_curve_is_a_density(rows: int) -> None:
    curve = fit_quantile_curve(RNG.gamma(2.0, 1.0, rows))
    # The tails beyond the outermost knots are exponential: 60 logits hold all but e^-60 of the mass.
    knots = np.asarray(curve.places)
    rates = np.diff(curve.logits)[[0, -1]] / np.diff(knots)[[0, -1]]
    ends = [knots[0] - 60 / rates[0], *knots, knots[-1] + 60 / rates[1]]

    def density(x: float) -> float:
        return float(np.exp(curve.log_density(np.array([x]))[0]))

    total = sum(quad(density, a, b, epsabs=1e-12, epsrel=1e-10)[0] for a, b in itertools.pairwise(ends))
    assert total == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize("truth", [stats.norm(), stats.t(3), stats.expon(), stats.uniform(), stats.lognorm(1.0)])
def test_a_curve_is_close_to_the_true_density(truth: stats.rv_continuous) -> None:
    """The loss against the true density on new rows is a few hundredths of a nat."""
    seen, other = (truth.rvs(size=4000, random_state=np.random.default_rng(i)) for i in range(2))
    lost = truth.logpdf(other) - fit_quantile_curve(seen).log_density(other)
    assert -0.03 < lost.mean() < 0.03


def test_weights_act_like_copies_of_rows() -> None:
    values = RNG.standard_normal(200)
    twice = fit_quantile_curve(np.sort(values), np.full(200, 7.5))
    assert twice == fit_quantile_curve(np.sort(values))
    tilted = fit_quantile_curve(values, np.exp(2 * values))
    assert abs(np.interp(0, tilted.logits, tilted.places) - 2) < 0.3  # the median of a normal, tilted by e^2x, is 2


def test_a_column_that_is_mostly_one_value_has_finite_scores() -> None:
    values = np.where(RNG.random(N) < 0.8, 0.0, RNG.exponential(1.0, N))
    assert np.isfinite(fit_quantile_curve(values).log_density(np.array([-5.0, 0.0, 1e-12, 3.0, 1e6]))).all()
    assert np.isfinite(fit_quantile_curve(np.zeros(N)).log_density(np.array([0.0, 1.0]))).all()


@pytest.mark.parametrize("ends", [(None, None), (0, None), (0, 40)])
def test_masses_of_codes_are_differences_of_the_distribution_function(ends: tuple[int | None, int | None]) -> None:
    """Under the map z is standard normal, so the mass of a code is Phi(z(code + 1)) - Phi(z(code))."""
    counts = CodeCounts()
    counts.update(RNG.binomial(40, 0.3, 500).astype(np.int64), None)
    histogram = histogram_of_codes(counts, *ends)
    codes = np.arange(-600.0, 600.0)
    low, high = histogram.limits
    inside = codes[(codes >= low) & (codes < high)]
    z = [histogram.forward(np.clip(inside + i, low, high))[0] for i in range(2)]
    from_either_end = np.where(
        z[0] < 0, stats.norm.cdf(z[1]) - stats.norm.cdf(z[0]), stats.norm.sf(z[0]) - stats.norm.sf(z[1])
    )
    np.testing.assert_allclose(np.exp(histogram.log_mass(inside)), from_either_end, rtol=1e-6, atol=1e-300)
    assert np.exp(histogram.log_mass(codes)).sum() == pytest.approx(1, abs=1e-9)
    assert (histogram.log_mass(codes[(codes < low) | (codes >= high)]) == -np.inf).all()


def learned(table: in_memory, options: TableOptions | None = None) -> tuple[TableEncoder, IndependentColumns]:
    encoder = TableEncoder(infer(table, options).schema)
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


def test_steps_with_a_transform_have_masses() -> None:
    count = RNG.geometric(0.05, 3000)
    rows = pa.table({"count": count, "x": RNG.standard_normal(3000)})
    encoder, independent = learned(in_memory(rows), TableOptions(transforms={"count": "log"}))
    assert isinstance(independent.marginals[0], Histogram)
    codes = np.arange(-10.0, 5000.0)
    assert np.exp(independent.marginals[0].log_mass(codes)).sum() == pytest.approx(1, abs=1e-6)
    y = encoder.read(rows.combine_chunks().to_batches()[0]).y
    masses = independent.marginals[0].log_mass(y[:, 0])
    assert abs((stats.geom(0.05).logpmf(count) - masses).mean()) < 0.05


def test_marginals_survive_json_and_invalid_json_is_refused() -> None:
    rows = pa.table({"word": ["a", "b"] * 200, "x": RNG.standard_normal(N)})
    encoder, independent = learned(in_memory(rows))
    kept = json.loads(json.dumps(independent.to_json()))
    assert kept[0] is None  # the column's histogram is used
    assert IndependentColumns.from_json(kept, encoder.columns) == independent
    for wrong in (
        None,
        [],
        [None, None],
        [kept[1], kept[1]],
        [None, {"type": "quantiles", "places": [0, 0], "logits": [0, 1]}],
        [None, {"type": "quantiles", "places": [0, 1]}],
        [None, {"type": "quantiles", "places": [0, math.inf], "logits": [0, 1]}],
        [None, {"type": "quantiles", "places": [0, 1, 2], "logits": [0, 1]}],
        [None, {"type": "scaled"}],
    ):
        with pytest.raises(TableError):
            IndependentColumns.from_json(wrong, encoder.columns)


def test_a_curve_refuses_knots_that_do_not_increase() -> None:
    with pytest.raises(ValueError, match="logits should increase"):
        QuantileCurve((0.0, 1.0), (1.0, 1.0))


# --- gains and gaps ---


def test_gains_are_paired_and_gaps_are_not() -> None:
    model, alone, weights = RNG.standard_normal((3, 50))
    weights = np.abs(weights)
    scores = ScoreOfRows()
    for piece in (slice(0, 20), slice(20, 50)):
        scores.update(model[piece], alone[piece], weights[piece])
    score = scores.result()
    assert score.gain is not None
    assert score.gain.mean == pytest.approx(np.average(model - alone, weights=weights))
    even = ScoreOfRows()
    even.update(model, alone)
    found = even.result()
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
    assert other.fitted.independent is not None
    assert first.independent is not None
    assert other.fitted.independent.marginals == first.independent.marginals


def test_an_older_run_without_marginals_can_score(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "run", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    kept = config["table"].pop("independent")
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    older = FittedTable.load(tmp_path / "run")
    scored = score_parts(older, open_table(run / "t.csv"))
    now = score_parts(FittedTable.load(run / "run"), open_table(run / "t.csv"))
    assert scored.whole == Score(now.whole.model)
    config["table"]["independent"] = kept[:1]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises(FlowFileError, match="marginals should be a list with one entry for each of 2 columns"):
        FittedTable.load(tmp_path / "run")


def test_a_single_column_has_no_gain(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n" + "".join(f"{x!r}\n" for x in RNG.standard_normal(50).tolist()))
    result = fit_table(tmp_path / "t.csv", tmp_path / "run", steps=2, progress=False)
    assert result.fitted.independent is None
    assert result.score.gain is None
    assert re.fullmatch(
        r"training rows score .* (higher|lower) than test rows", *score_lines(result.score, result.train)
    )
