"""Encoding and decoding of rows for a flow: exact values, Jacobians, and probabilities that sum to one."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from tests.helpers.table_parts import load_parts

import cubicflow as cf
from cubicflow import saved
from cubicflow.data.rows import Order
from cubicflow.distributions import StandardNormal
from cubicflow.tables import Split, TableError, TableOptions, infer, open_table
from cubicflow.tables.maps import Histogram, Map, Scaled, histogram_of_codes
from cubicflow.tables.model.flow import FlowEncoder, column_densities, log_likelihood, offsets
from cubicflow.tables.read.table import Table
from cubicflow.tables.schema.plain_rows import PlainRows
from cubicflow.tables.unit_scale import CodeCounts
from cubicflow.transforms import Compose

N = 60
finite = st.floats(-1e6, 1e6, allow_subnormal=False)


def columns() -> st.SearchStrategy[pa.Array]:
    """Return a strategy for columns of numbers of every type, with at least two different values."""

    def of(values: st.SearchStrategy[Any], type: pa.DataType) -> st.SearchStrategy[pa.Array]:
        lists = st.lists(values, min_size=N, max_size=N).filter(lambda column: len(set(column)) > 1)
        return lists.map(lambda column: pa.array(column, type=type))

    moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
    return st.one_of(
        of(finite, pa.float64()),
        of(st.floats(-1e6, 1e6, width=32, allow_subnormal=False), pa.float32()),
        of(st.integers(-(2**40), 2**40), pa.int64()),
        of(st.integers(-128, 127), pa.int8()),
        of(st.integers(0, 3), pa.uint16()),
        of(st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)), pa.date32()),
        of(moments.map(lambda moment: moment.replace(microsecond=0)), pa.timestamp("s")),
        of(st.integers(0, 10**12), pa.timestamp("us", "UTC")),
        of(st.decimals(-1000, 1000, places=2), pa.decimal128(10, 2)),
        of(st.integers(-5000, 5000).map(lambda k: k / 100), pa.float64()),
        of(st.integers(-5000, 5000).map(lambda k: k / 4), pa.float32()),
    )


@settings(
    max_examples=25 if settings.default.derandomize else 200,  # `make soak` searches more examples
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(st.lists(columns(), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_decoding_undoes_encoding(tmp_path: Path, arrays: list[pa.Array], seed: int) -> None:
    """This holds for every type of column: up to rounding for real numbers, exactly for all others.

    The noise stays 1/16 away from the ends of a step. If a sixtieth of the mass is spread over 2^41 codes, one code has
    a probability of 8e-15, and the rounding error of z, about 2e-16, is a fortieth of that.
    """
    path = tmp_path / "t.parquet"
    table = pa.table({f"c{i}": array for i, array in enumerate(arrays)})
    pq.write_table(table, path)
    table = pq.read_table(path)  # Parquet has no timestamps in seconds
    schema = infer(open_table(path)).schema
    encoder = FlowEncoder(schema)
    (batch,) = open_table(path).batches()
    noise = encoder.noise(len(batch), np.random.default_rng(seed))
    noise = None if noise is None else noise * (7 / 8) + 1 / 16
    x = encoder.inputs(encoder.read(batch).y, noise)
    assert np.isfinite(x).all()
    back = encoder.decode(encoder.numbers(x))
    assert back.schema.types == table.schema.types
    for column in schema.columns:
        before, after = table.column(column.name).combine_chunks(), back.column(column.name)
        if column.kind == "real":
            before, after = before.cast(pa.float64()).to_numpy(), after.cast(pa.float64()).to_numpy()
            scale = np.abs(before).max()
            np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-12 * scale)
        else:
            assert after.equals(before)


MAPS: list[tuple[Map, Any]] = [
    (Scaled(mean=3.0, std=0.25), np.linspace(-5, 5, 41)),
    (Scaled("log", mean=1.0, std=2.0), np.geomspace(1e-6, 1e6, 41)),
    (Scaled("log", mean=1.0, std=2.0, start=0.0, unit=0.5), np.linspace(0.01, 40, 41)),
    (Scaled("asinh", mean=1.0, std=2.0, centre=5.0, scale=0.1), np.linspace(-1e3, 1e3, 42)),
    (Scaled("bounded", low=-1.0, high=3.0), np.linspace(-0.999, 2.999, 41)),
    (Scaled("bounded", low=-1.0), np.geomspace(1e-3, 1e3, 41)),
    (Scaled("bounded", high=-1.0, std=3.0), -np.geomspace(1.001, 1e3, 41)),
    (Scaled("bounded", mean=1.0, std=2.0), np.linspace(-5, 5, 41)),  # bounds of -inf and inf
    (Histogram((0, 1, 4, 9), (0.5, 0.2, 0.3)), np.linspace(0.05, 8.95, 38)),
    (Histogram((-3, 1, 4, 9), (0.5, 0.2, 0.3), 0.01, 0.02, 2.0, 5.0), np.linspace(-30.03, 40.05, 61)),
    (Histogram((0, 1, 2), (1e-9, 1 - 1e-9)), np.array([0.25, 0.75, 1.25, 1.999])),
]


@pytest.mark.parametrize(("map", "y"), MAPS)
def test_the_slope_of_a_map_is_its_derivative(map: Map, y: np.ndarray) -> None:
    """Central differences have a relative error below 1e-6 here. The inverse undoes the map."""
    z, log_slope = map.forward(y)
    assert (np.diff(z) * np.sign(np.diff(y)) > 0).all()
    near = np.min([np.abs(y - limit) for limit in (*map.limits, 0.0) if np.isfinite(limit)], axis=0)
    step = 1e-6 * np.clip(near, 1e-3, 1e2)
    difference = (map.forward(y + step)[0] - map.forward(y - step)[0]) / ((y + step) - (y - step))
    np.testing.assert_allclose(np.exp(log_slope), difference, rtol=2e-6)
    # The error of y is the rounding error of z divided by the slope.
    np.testing.assert_allclose(map.inverse(z), y, rtol=1e-9, atol=(3e-15 * np.abs(z) / np.exp(log_slope)).max())
    assert saved.from_json(type(map), map.to_json(), exact=True) == map


@given(st.lists(st.integers(-50, 3000), min_size=1, max_size=400), st.booleans(), st.booleans(), st.integers(1, 8))
def test_histograms_hold_every_code(codes: list[int], low: bool, high: bool, most: int) -> None:
    """The bins hold all codes, pooled or not. Codes outside are finite at open ends."""
    seen = CodeCounts(most * 40)
    for part in np.array_split(np.array(codes), 3):
        seen.update(part, None)
    assert seen.counts.sum() == len(codes)
    map = histogram_of_codes(seen, min(codes) - 2 if low else None, max(codes) + 2 if high else None)
    y = np.unique(codes) + 0.5
    z, log_slope = map.forward(y)
    assert np.isfinite(z).all()
    assert np.isfinite(log_slope).all()
    assert (np.floor(map.inverse(z)) == np.unique(codes)).all()
    for end, closed in ((min(codes) - 1000.5, low), (max(codes) + 1000.5, high)):
        if not closed:
            assert np.isfinite(map.forward(np.array([end]))).all()


def flow_inputs(encoder: FlowEncoder, batch: pa.RecordBatch, seed: int) -> np.ndarray:
    """Return the inputs of a flow for a batch, with noise of this seed."""
    return encoder.inputs(encoder.read(batch).y, encoder.noise(len(batch), np.random.default_rng(seed)))


def identity_flow(features: int) -> cf.Flow:
    return cf.Flow(StandardNormal(features), Compose([cf.transforms.Permutation(list(range(features)))]))


def table_of(folder: Path, **values: Any) -> Table:
    path = folder / "t.parquet"
    pq.write_table(pa.table(values), path)
    return open_table(path)


def test_masses_sum_to_one(tmp_path: Path) -> None:
    """The sum is over all combinations of two discrete columns. Under the identity the integrand is constant in every
    step, so the sixteen offsets are exact. Under a random flow they are a quadrature."""
    rng = np.random.default_rng(0)
    table = table_of(tmp_path, c=rng.choice([0.25, 0.5, 0.75], 500, p=[0.7, 0.2, 0.1]), n=rng.integers(1, 6, 500))
    encoder = FlowEncoder(infer(table).schema)
    every = pa.RecordBatch.from_pylist(
        [{"c": c, "n": n} for c, n in itertools.product([0.25, 0.5, 0.75], range(1, 6))],
        schema=pa.schema({"c": pa.float64(), "n": pa.int64()}),
    )
    numbers = encoder.read(every)
    # Half a row is reserved beyond each open end of both columns, of 400 training rows.
    total = np.exp(log_likelihood(identity_flow(2), encoder, numbers)).sum()
    assert 1 - 4 * 0.5 / 400 < total < 1
    torch.manual_seed(0)
    flow = cf.flows.tabular(2, num_layers=2, hidden_features=16, identity_start=False)
    total = np.exp(log_likelihood(flow, encoder, numbers)).sum()
    assert total == pytest.approx(1, abs=0.03)


def test_densities_are_in_the_units_of_the_data(tmp_path: Path) -> None:
    """The density of a real column, summed over the values of a column with steps, integrates to one."""
    rng = np.random.default_rng(0)
    table = table_of(tmp_path, x=rng.gamma(3.0, 1000.0, 600), b=(rng.random(600) < 0.3).astype(int))
    schema = infer(table, TableOptions(transforms={"x": "log"})).schema
    encoder = FlowEncoder(schema)
    torch.manual_seed(1)
    flow = cf.flows.tabular(2, num_layers=2, hidden_features=16, identity_start=False).double()
    x = np.geomspace(1e-2, 1e7, 6001)
    total = 0.0
    for b in (0, 1):
        batch = pa.RecordBatch.from_arrays([pa.array(x), pa.array([b] * len(x))], names=["x", "b"])
        total += np.trapezoid(np.exp(log_likelihood(flow, encoder, encoder.read(batch))), x)
    assert total == pytest.approx(1, abs=0.02)


def test_scores_agree_with_torch(tmp_path: Path) -> None:
    """With an identity flow, the score of a real column is the normal density of the training rows' mean and spread."""
    values = np.random.default_rng(0).normal(50.0, 7.0, 300)
    table = table_of(tmp_path, x=values)
    schema = infer(table).schema
    train = values[Split().parts_of(np.arange(300)) == 0]
    expected = torch.distributions.Normal(train.mean(), train.std()).log_prob(torch.from_numpy(values))
    encoder = FlowEncoder(schema)
    (batch,) = table.batches()
    np.testing.assert_allclose(log_likelihood(identity_flow(1), encoder, encoder.read(batch)), expected, atol=1e-5)


def test_offsets_are_spread_and_fixed() -> None:
    points = offsets(40)
    np.testing.assert_allclose(np.sort(points, axis=0), np.repeat((np.arange(16)[:, None] + 0.5) / 16, 40, axis=1))
    correlation = np.corrcoef(points.T) - np.eye(40)
    assert np.abs(correlation).max() < 0.75  # no two columns are strongly correlated
    assert np.abs(np.corrcoef(points[:, :8].T) - np.eye(8)).max() < 0.35
    np.testing.assert_array_equal(offsets(3), points[:, :3])


def test_given_values_equal_the_context_of_a_row(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = table_of(
        tmp_path, x=rng.standard_normal(200), c=rng.choice(["a", "b", "c"], 200), n=rng.integers(0, 9, 200)
    )
    schema = infer(table, TableOptions(context=("c", "n"))).schema
    encoder = FlowEncoder(schema)
    assert (encoder.features, encoder.context_features) == (1, 4)
    (batch,) = table.batches()
    context = encoder.read(batch).context
    assert context is not None
    features = encoder.context_inputs(context)
    assert features is not None
    np.testing.assert_array_equal(features[:, :3], np.eye(3)[["abc".index(c) for c in batch.column("c").to_pylist()]])
    row = batch.to_pylist()[5]
    repeated, columns = encoder.context_from({"c": row["c"], "n": str(row["n"])}, 3)
    np.testing.assert_array_equal(repeated, np.repeat(context[5:6], 3, axis=0))
    samples = encoder.decode(encoder.numbers(np.zeros((3, 1))), columns)
    assert samples.schema.names == ["x", "c", "n"]
    assert samples.to_pylist()[0]["c"] == row["c"]
    for given_values, said in (
        ({"c": "a"}, "give a value for 'n'"),
        ({"c": "z", "n": "1"}, "which the fitted table did not"),
        ({"c": "a", "n": "1", "x": "0"}, "'x' cannot be given"),
        ({"c": "a", "n": "much"}, "should hold whole numbers, found 'much'"),
    ):
        with pytest.raises(TableError, match=said):
            encoder.context_from(given_values, 1)


def test_streaming_equals_reading_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result depends neither on the batches nor on whether numbers are kept in memory or in a file."""
    rng = np.random.default_rng(0)
    frame = {
        "x": rng.standard_normal(1500),
        "n": rng.poisson(4, 1500),
        "c": rng.integers(0, 400, 1500) / 8,
        "w": rng.random(1500),
    }
    table = table_of(tmp_path, **frame)
    options = TableOptions(weights="w")
    whole = infer(table, options)
    encoder = FlowEncoder(whole.schema)
    kept = load_parts(table, encoder, Split(), "error", 1500, tmp_path)
    original = type(table).batches
    monkeypatch.setattr(type(table), "batches", lambda self, columns=None, rows=7: original(self, columns, 7))
    cut = infer(table, options)
    assert (cut.rows, cut.parts) == (whole.rows, whole.parts)
    for one, other in zip(whole.schema.columns, cut.schema.columns, strict=True):
        if isinstance(one.map, Scaled):
            assert isinstance(other.map, Scaled)
            np.testing.assert_allclose([one.map.mean, one.map.std], [other.map.mean, other.map.std], rtol=1e-12)
        elif isinstance(one.map, Histogram):
            assert isinstance(other.map, Histogram)
            assert one.map.edges == other.map.edges
            np.testing.assert_allclose(one.map.masses, other.map.masses, rtol=1e-9)
    monkeypatch.setattr("cubicflow.tables.schema.plain_rows.MOST_IN_MEMORY", 0)
    spooled = load_parts(table, encoder, Split(), "error", 1500, tmp_path)
    assert isinstance(spooled.train.numbers, np.memmap)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
    for part, other in zip(kept, spooled, strict=True):
        for batch, same in zip(part.in_order(512), other.in_order(512), strict=True):
            torch.testing.assert_close(batch.x, same.x, rtol=0, atol=0)
            torch.testing.assert_close(batch.weights, same.weights, rtol=0, atol=0)


def test_epochs_have_fresh_noise_and_can_be_resumed(tmp_path: Path) -> None:
    table = table_of(tmp_path, n=np.random.default_rng(0).integers(0, 9, 2000))
    encoder = FlowEncoder(infer(table).schema)
    rows = load_parts(table, encoder, Split(), "error", 2000, tmp_path).train
    order = Order(64, seed=3)
    first = [batch.x for batch in rows.epoch(order, 0)]
    assert len(first) == 1600 // 64
    for resumed_at in (1, 7, 24):
        for expected, found in zip(first[resumed_at:], rows.epoch(order, 0, resumed_at), strict=True):
            assert torch.equal(expected, found.x)
    halves = [[b.x for b in rows.epoch(Order(64, 3, rank, 2), 0)] for rank in (0, 1)]
    assert torch.equal(torch.cat([halves[0][3], halves[1][3]]), first[3])
    values = {float(v) for epoch in (0, 1) for batch in rows.epoch(order, epoch) for v in batch.x[:, 0]}
    assert len(values) > 3000
    assert rows.fingerprint() == load_parts(table, encoder, Split(), "error", 2000, tmp_path).train.fingerprint()


def test_fingerprints_depend_on_the_values_not_on_their_encoding(tmp_path: Path) -> None:
    """Processors may differ in the last bit of the encoding. A run must still resume on another machine."""
    table = table_of(tmp_path, a=np.random.default_rng(0).normal(size=2000))
    encoder = FlowEncoder(infer(table).schema)
    parts = load_parts(table, encoder, Split(), "error", 2000, tmp_path)
    before = [part.fingerprint() for part in parts]
    assert len(set(before)) == 3
    other = FlowEncoder(infer(table, TableOptions(transforms={"a": "asinh"})).schema)
    again = load_parts(table, other, Split(), "error", 2000, tmp_path)
    assert not torch.equal(again.train.take(torch.arange(5)).x, parts.train.take(torch.arange(5)).x)
    assert [part.fingerprint() for part in again] == before
    assert again.train.chosen is not None
    again.train.numbers[int(again.train.chosen[700]), 0] += 1e-9
    assert again.train.fingerprint() != before[0]
    assert again.validation.fingerprint() == before[1]


@pytest.mark.parametrize("name", ["penguins", "diamonds"])
def test_real_tables_survive_encoding_and_decoding(real_data: Path, name: str) -> None:
    """pandas reads the decoded table as it reads the original. The numbers also survive the maps of a flow."""
    path = real_data / "tables" / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"no real table: {path} is not there")
    found = infer(open_table(path), TableOptions(missing="drop"))
    plain = PlainRows(found.schema)
    before = pd.read_csv(path).dropna().head(2000)
    text = pa.RecordBatch.from_pandas(pd.read_csv(path, dtype=str).dropna().head(2000), preserve_index=False)
    y = plain.read(text).y
    after = plain.decode(y).to_pandas()
    pd.testing.assert_frame_equal(after, before.reset_index(drop=True), check_exact=True, check_dtype=False)
    words = [column.name for column in found.schema.model if column.is_list]
    numbers = FlowEncoder(infer(open_table(path), TableOptions(missing="drop", drop=tuple(words))).schema)
    after = numbers.decode(numbers.numbers(flow_inputs(numbers, text, 0))).to_pandas()
    expected = before.drop(columns=words).reset_index(drop=True)
    pd.testing.assert_frame_equal(after, expected, check_exact=True, check_dtype=False)


@pytest.mark.parametrize("transform", ["log", "asinh"])
def test_a_transform_of_whole_numbers(tmp_path: Path, transform: str) -> None:
    """With a transform instead of a histogram, the integers are restored and the masses sum to one."""
    table = table_of(tmp_path, n=np.random.default_rng(0).poisson(5, 400))
    encoder = FlowEncoder(infer(table, TableOptions(transforms={"n": transform})).schema)
    assert isinstance(encoder.maps[0], Scaled)
    (batch,) = table.batches()
    assert encoder.decode(encoder.numbers(flow_inputs(encoder, batch, 1))).equals(batch)
    first = 0 if transform == "log" else -200
    every = pa.RecordBatch.from_arrays([pa.array(np.arange(first, 3000))], names=["n"])
    total = np.exp(log_likelihood(identity_flow(1), encoder, encoder.read(every))).sum()
    assert total == pytest.approx(1, abs=2e-3)  # the error of sixteen midpoints of a log-normal density on [0, 1]


def test_categoricals_of_pandas_stay_categoricals(tmp_path: Path) -> None:
    words = pd.Categorical(np.random.default_rng(0).choice(["x", "y"], 100))
    path = tmp_path / "t.parquet"
    pd.DataFrame({"c": words}).to_parquet(path)
    rows = PlainRows(infer(open_table(path)).schema)
    (batch,) = open_table(path).batches()
    after = rows.decode(rows.read(batch).y).to_pandas()
    assert isinstance(after["c"].dtype, pd.CategoricalDtype)
    assert after["c"].astype(str).tolist() == list(words)


def test_columns_of_a_flow_given_the_others() -> None:
    """In a correlated normal the conditional density of each number given the other is known."""
    import torch

    import cubicflow as cf
    from cubicflow.transforms import LULinear

    torch.manual_seed(0)
    flow = cf.Flow(cf.distributions.StandardNormal(2), LULinear(2)).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
        noise = torch.cat([torch.zeros(1, 2), torch.eye(2)]).double()
        points = flow.from_noise(noise)[0].numpy()
    offset, matrix = points[0], (points[1:] - points[0]).T
    covariance = matrix @ matrix.T
    assert abs(covariance[0, 1]) > 0.05
    x = np.array([[0.3, -0.7], [1.5, 0.2]])
    found = column_densities(flow, x, (-9.0, 9.0))
    for row, (a, b) in enumerate(x - offset):
        for i, (own, other) in enumerate(((a, b), (b, a))):
            slope = covariance[0, 1] / covariance[1 - i, 1 - i]
            variance = covariance[i, i] - slope * covariance[0, 1]
            expected = -0.5 * ((own - slope * other) ** 2 / variance + np.log(2 * np.pi * variance))
            assert found[row, i] == pytest.approx(expected, abs=1e-6)
