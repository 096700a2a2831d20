"""Values of a column are accepted in any size and type, other values are refused, and samples are valid values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from tests.helpers.strict_rows import StrictRows

from cubicflow.estimator import CubicFlowConditional
from cubicflow.tables import Schema, TableError, TableOptions, infer, open_table
from cubicflow.tables.arrow_types import exact_cast
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.maps import Scaled
from cubicflow.tables.model.flow import FlowEncoder
from cubicflow.tables.read.table import in_memory

RNG = np.random.default_rng(0)
N = 400
OTHER = RNG.standard_normal(N)


def schema_of(options: TableOptions | None = None, **columns: Any) -> Schema:
    return infer(in_memory(pa.table({"other": OTHER, **columns})), options).schema


def numbers(schema: Schema, **columns: Any) -> Any:
    """Return what an encoder reads of these columns: the context if there is one, else the numbers."""
    rows = len(next(iter(columns.values())))
    found = StrictRows(schema).read(pa.RecordBatch.from_pydict({"other": OTHER[:rows], **columns}))
    return found.y if found.context is None else found.context


def samples_of(schema: Schema, name: str, z: Sequence[float]) -> pa.Array:
    encoder = FlowEncoder(schema)
    return encoder.decode(encoder.numbers(np.tile(np.array(z)[:, None], encoder.features))).column(name)


@pytest.mark.parametrize("role", ["model", "context"])
def test_values_far_from_zero_but_near_the_fitted_ones_are_accepted(role: str) -> None:
    values = RNG.normal(5e14, 2e13, N)
    options = TableOptions(context=("c",) if role == "context" else (), kinds={"c": "real"})
    schema = schema_of(options, c=values)
    z = numbers(schema, c=values)[:, -1]
    assert np.isfinite(z).all()
    assert schema["c"].map is not None
    assert abs(schema["c"].map.forward(values)[0]).max() < 6
    with pytest.raises(TableError, match="absurdly far"):
        numbers(schema, c=[1e30])


def test_casts_keep_a_value_exactly_or_give_null() -> None:
    """Python's comparison of numbers is the reference. It is exact between types."""
    whole, fractions = [1, -1, 300, 2**53 + 1], [1.0, 1.5, 300.0, 1e30]
    for values, type in (
        (pa.array(fractions), pa.int64()),
        (pa.array(fractions), pa.int8()),
        (pa.array(fractions[:2], pa.float16()), pa.int8()),
        (pa.array(whole), pa.uint8()),
        (pa.array(whole), pa.float64()),
        (pa.array(whole[:3]), pa.decimal128(4, 2)),
        (pa.array([1.5, 1.504, 1e9]), pa.decimal128(4, 2)),
        (pa.array([Decimal("2.00"), Decimal("1.50")]), pa.int64()),
        (pa.array([Decimal("1.50"), Decimal("1.54")]), pa.decimal128(4, 1)),
    ):
        cast = exact_cast(values, type)
        for before, after in zip(values.to_pylist(), cast.to_pylist(), strict=True):
            assert after is None or Decimal(before) == Decimal(after), (values, type)
        assert cast[0].is_valid
        assert not cast[-1].is_valid


@pytest.mark.parametrize("value", [1, 9007199254740993, 2**62 + 1])
def test_a_constant_accepts_only_its_value(tmp_path: Path, value: int) -> None:
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": OTHER, "k": value}).to_csv(path, index=False)
    table = open_table(path)
    encoder = StrictRows(infer(table).schema)
    for batch in table.batches():
        encoder.read(batch)
    for other in (f"{value + 1}", f"{value}.5" if value < 2**50 else f"{value - 1}"):
        path.write_text(f"x,k\n0.5,{other}\n")
        with pytest.raises(TableError, match=rf"was always {value} in the fitted table; here it also holds {other}"):
            encoder.read(next(iter(open_table(path).batches())))


def test_unequal_numbers_of_another_type_are_refused() -> None:
    schema = schema_of(TableOptions(kinds={"c": "categorical"}), k=np.ones(N, np.int64), c=RNG.integers(0, 3, N))
    assert numbers(schema, k=[1.0], c=[2.0])[0, 1] == schema["c"].levels.index(2)
    with pytest.raises(TableError, match=r"was always 1 .* also holds 1\.7"):
        numbers(schema, k=[1.0, 1.7], c=[0.0, 1.0])
    with pytest.raises(TableError, match=r"'c' holds 0\.9, which the fitted table did not"):
        numbers(schema, k=[1.0, 1.0], c=[0.9, 1.0])


FAR = (-40.0, -1.0, 0.0, 1.0, 40.0)


@pytest.mark.parametrize("bits", [32, 64, 128, 256])
@pytest.mark.parametrize("kind", [None, "real"])
def test_samples_of_decimals_fit_their_type(tmp_path: Path, bits: int, kind: str | None) -> None:
    type = getattr(pa, f"decimal{bits}")(4, 2)
    column = pa.array([f"{value:.2f}" for value in RNG.uniform(50, 99.99, N)]).cast(type)
    schema = Schema.from_json(schema_of(TableOptions(kinds={"c": kind} if kind else {}), c=column).to_json())
    samples = samples_of(schema, "c", FAR)
    assert samples.type == type
    assert max(samples.to_pylist()) == Decimal("99.99")
    numbers(schema, c=samples)


def test_samples_of_whole_decimals_fit_their_type() -> None:
    column = pa.array([f"{value}.00" for value in RNG.integers(50, 100, N)]).cast(pa.decimal128(4, 2))
    samples = samples_of(schema_of(TableOptions(kinds={"c": "integer"}), c=column), "c", FAR)
    assert max(samples.to_pylist()) == Decimal("99.00")


def test_samples_of_half_floats_are_finite() -> None:
    bell = RNG.normal(20, 4, N)  # thin ends, so no hard limits are inferred
    columns = {"real": RNG.uniform(5e4, 6.5e4, N), "integer": np.round(bell), "stepped": np.round(bell)}
    for kind, values in columns.items():
        schema = schema_of(TableOptions(kinds={"c": kind}), c=values.astype(np.float16))
        samples = samples_of(schema, "c", (*FAR, 1e9)).to_numpy(zero_copy_only=False)
        assert samples.dtype == np.float16
        assert samples.max() == np.finfo(np.float16).max


@given(
    st.sampled_from([(0.0, 1.0), (0.3, None), (None, 0.7), (-1 / 3, 0.1)]),
    st.sampled_from([None, 1, 2, 6]),
    st.sampled_from(["double", "float", "halffloat", "decimal128(9, 6)"]),
    st.floats(-800, 800),
)
def test_samples_stay_inside_hard_limits(
    limits: tuple[float | None, float | None], decimals: int | None, type: str, z: float
) -> None:
    """The comparison with the limits is exact, because it uses decimals."""
    low, high = limits
    column = Real("c", type, decimals=decimals, map=Scaled("bounded", low=low, high=high))
    sample = Decimal(column.decode(np.array([column.map.inverse(np.array([z]))[0]]))[0].as_py())  # type: ignore[union-attr]
    assert low is None or sample > Decimal(low)
    assert high is None or sample < Decimal(high)


def test_samples_of_a_bounded_column_can_be_scored() -> None:
    column = np.round(RNG.beta(0.2, 0.2, 20 * N), 6)
    column = column[(column > 0) & (column < 1)][:N]
    schema = schema_of(TableOptions(bounds={"c": (0, 1)}), c=column)
    samples = samples_of(schema, "c", np.linspace(-30, 30, 99).tolist())
    assert {0.000001, 0.999999} <= set(samples.to_pylist())
    numbers(schema, c=samples)


def test_samples_of_the_logarithm_of_steps_can_be_scored() -> None:
    schema = schema_of(TableOptions(transforms={"c": "log"}), c=0.25 + 0.5 * RNG.integers(0, 40, N))
    samples = samples_of(schema, "c", FAR)
    assert min(samples.to_pylist()) == 0.25
    numbers(schema, c=samples)


def test_context_values_may_be_unseen() -> None:
    """Features increase with the value: on the grid, between its points and beyond its ends."""
    options = TableOptions(context=("rooms", "size", "day"))
    days = [dt.date(2024, 1, 1) + dt.timedelta(days=7 * int(week)) for week in RNG.integers(0, 50, N)]
    seen = {"rooms": RNG.integers(1, 6, N), "size": np.round(RNG.normal(9, 2, N) * 4) / 4, "day": days}
    schema = schema_of(options, **seen)
    given: dict[str, list[Any]] = {
        "rooms": [-3, 0, 1, 2.5, 5, 6, 99],
        "size": [-1e3, 0.0, 9.0, 9.1, 9.25, 40.0, 1e6],
        "day": [dt.date(year, 1, 2) for year in (1990, 2020, 2024, 2025, 2026, 2050, 2200)],
    }
    features = numbers(schema, **given)
    assert np.isfinite(features).all()
    assert (np.diff(features, axis=0) > 0).all()
    on_grid = numbers(schema, rooms=[2, 3], size=[9.0, 9.25], day=days[:2])
    between = numbers(schema, rooms=[2, 2.5], size=[9.0, 9.1], day=days[:2])
    assert (between[0] == on_grid[0]).all()
    assert (between[1, :2] < on_grid[1, :2]).all()
    with pytest.raises(TableError, match="absurdly far"):
        numbers(schema, **{**given, "size": [1e60] * 7})
    with pytest.raises(TableError, match="infinite"):
        numbers(schema, **{**given, "size": [np.inf] * 7})


def test_given_context_values_are_written_unchanged() -> None:
    options = TableOptions(context=("rooms", "word", "day"))
    days = [dt.date(2024, 1, 1) + dt.timedelta(days=7 * (i % 30)) for i in range(N)]
    schema = schema_of(options, rooms=RNG.integers(1, 6, N), word=RNG.choice(["a", "b"], N), day=days)
    encoder = StrictRows(schema)
    given_values = {"rooms": "6", "word": "b", "day": "2024-01-02"}
    _, arrays = encoder.context_from(given_values, 2)
    assert {name: array.type for name, array in arrays.items()} == {c.name: c.arrow_type for c in schema.context}
    assert arrays["day"].to_pylist() == [dt.date(2024, 1, 2)] * 2
    assert encoder.context_from({**given_values, "rooms": "2.5"}, 2)[1]["rooms"].to_pylist() == [2.5, 2.5]
    with pytest.raises(TableError, match="'word' holds 'c', which the fitted table did not"):
        encoder.context_from({**given_values, "word": "c"}, 2)


def test_an_estimator_accepts_unseen_context_values() -> None:
    frame = pd.DataFrame({"rooms": RNG.integers(1, 6, 60), "far": RNG.normal(5e14, 2e13, 60)})
    fitted = CubicFlowConditional(2, max_steps=5, random_state=0).fit(frame, frame["rooms"] + RNG.standard_normal(60))
    assert np.isfinite(fitted.predict(pd.DataFrame({"rooms": [6, 0], "far": [5e14, 6e14]}))).all()


def test_a_constant_decimal_is_written_unchanged() -> None:
    price = pa.array(["9.50"] * N).cast(pa.decimal128(4, 2))
    schema = schema_of(price=price)
    assert schema["price"].describe() == "always 9.50: probability 1"
    with pytest.raises(TableError, match=r"was always 9\.50 in the fitted table; here it also holds 9\.504"):
        numbers(schema, price=[9.5, 9.504])


def test_dates_are_written_as_dates(tmp_path: Path) -> None:
    start = dt.date(2024, 3, 1)
    days = [start + dt.timedelta(days=7 * (i % 30)) for i in range(N)]
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"day": days, "made": [start] * N, "told": days, "x": OTHER}), path)
    found = infer(open_table(path), TableOptions(kinds={"told": "categorical"}))
    assert "'made' is always 2024-03-01; samples repeat it" in found.notes
    assert found.schema["made"].describe() == "always 2024-03-01: probability 1"
    for changed, said in (
        ({"day": dt.date(2024, 3, 2)}, r"steps of 7 days counted from 2024-03-01, the first is 2024-03-02; round them"),
        ({"made": dt.date(2024, 3, 2)}, "was always 2024-03-01 in the fitted table; here it also holds 2024-03-02"),
        ({"told": dt.date(2024, 3, 2)}, "holds 2024-03-02, which the fitted table did not; it held 2024-03-01, 2024"),
    ):
        row = {"day": start, "made": start, "told": start, "x": 0.5, **changed}
        with pytest.raises(TableError, match=said):
            StrictRows(found.schema).read(pa.RecordBatch.from_pylist([row]))


def test_a_number_beyond_its_type_becomes_null() -> None:
    cast = exact_cast(pa.array([1.5, 1e5, np.inf]), pa.float16())
    assert cast.is_null().to_pylist() == [False, True, False]
