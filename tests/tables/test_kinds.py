"""The contract of every kind of column. A new kind needs only a record, and a codec if it has its own."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cubicflow.plots.marginals import make_panel
from cubicflow.tables import FittedTable, Schema, TableError, TableOptions, fit_table, infer
from cubicflow.tables.arrow_types import is_text, type_name
from cubicflow.tables.axes import axis_of
from cubicflow.tables.kinds import KIND_NAMES, KINDS, column_from_json, kinds
from cubicflow.tables.kinds.column import Column, Role
from cubicflow.tables.kinds.facts import Facts
from cubicflow.tables.kinds.records import ColumnKind
from cubicflow.tables.model.flow import FlowEncoder
from cubicflow.tables.read.table import in_memory

RNG = np.random.default_rng(0)
N = 300
OTHER = RNG.standard_normal(N)
VALUES: dict[str, Any] = {
    "real": RNG.standard_normal(N),
    "circular": RNG.uniform(-180, 180, N),
    "circular steps": RNG.integers(0, 24, N),
    "levels": np.log(RNG.integers(1, 9, N)),
    "stepped": np.round(RNG.standard_normal(N), 2),
    "integer": RNG.integers(-5, 50, N),
    "datetime": [dt.date(2024, 1, 1) + dt.timedelta(days=int(day)) for day in RNG.integers(0, 90, N)],
    "categorical": RNG.choice(["x", "y", "zz"], N).tolist(),
    "boolean": RNG.random(N) < 0.3,
    "constant": [7] * N,
    "dropped": ["left", "out"] * (N // 2),
}


def column_of(kind: str, role: str = "model") -> tuple[Column, pa.Array]:
    rows = pa.table({"c": VALUES[kind], "other": OTHER})
    drop = ("c",) if kind == "dropped" else ()
    asked = {"circular": {"c": "circular:-180:180"}, "circular steps": {"c": "circular:24"}}.get(kind, {})
    options = TableOptions(kinds=asked, context=("c",) if role == "context" else (), drop=drop)
    return infer(in_memory(rows), options).schema["c"], rows["c"].combine_chunks()


def schema_of_context(column: Column) -> Schema:
    """Return the schema of a table with this context column and a column of numbers."""
    other = infer(in_memory(pa.table({"other": OTHER}))).schema["other"]
    return Schema((column, other))


def test_every_kind_is_here() -> None:
    assert VALUES.keys() == set(KINDS) == {kind.name for kind in kinds().values()}
    assert [kind for kind in KINDS if kind not in KIND_NAMES] == ["circular steps", "levels", "dropped"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", ["model", "context"])
def test_every_kind_keeps_the_contract(kind: str, role: str) -> None:
    if role == "context" and "context" not in kinds()[kind].roles:
        return
    column, values = column_of(kind, role)
    assert type(column) is kinds()[kind].codec
    assert column.kind == kind
    described = json.loads(json.dumps(column.to_json()))
    assert list(described)[:4] == ["name", "kind", "type", "role"]
    assert column_from_json(described) == column
    assert column.describe()
    y = column.encode(values)
    assert y.shape == (N,)
    if kind != "dropped":
        back = column.decode(y + 0.5 * column.counts_mass)
        assert back.type == values.type
        if kind in ("real", "circular"):  # decoded values are rounded to the digits of the column
            np.testing.assert_allclose(back.to_numpy(), values.to_numpy(), rtol=1e-12)
        else:
            assert back.equals(values)
    if role == "context":
        encoder = FlowEncoder(schema_of_context(column))
        features = encoder.context_inputs(y[:, None])
        assert features is not None
        assert features.shape == (N, encoder.context_features)
        assert np.isfinite(features).all()
    elif column.role == "model":
        panel = make_panel(column, y, y[:50])
        assert panel.data.shape == (N,)
        assert bool(panel.labels) is column.is_list
        if not (column.is_list or column.is_circle):  # a flow has numbers on a line only
            z, log_slope = column.needed_map.forward(y + 0.5 * column.counts_mass)
            assert np.isfinite(z).all()
            assert np.isfinite(log_slope).all()


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_read_like_values(kind: str) -> None:
    column, values = column_of(kind)
    texts = pa.array([str(value).lower() if kind == "boolean" else str(value) for value in values.to_pylist()])
    np.testing.assert_array_equal(column.encode(texts), column.encode(values))
    if kind not in ("categorical", "dropped"):
        with pytest.raises(TableError, match=r"'c' should hold .*, found 'no such value'"):
            column.encode(pa.array(["no such value"]))


BAD: list[tuple[str, dict[str, Any]]] = [
    ("real", {"kind": "unreal"}),
    ("real", {"kind": ["real"]}),
    ("real", {"name": 3}),
    ("real", {"type": "string"}),
    ("real", {"type": "nonsense"}),
    ("real", {"role": "dropped"}),
    ("real", {"role": []}),
    ("real", {"decimals": -1}),
    ("real", {"decimals": "2"}),
    ("real", {"levels": [1, 2]}),
    ("circular", {"ends": None}),
    ("circular", {"ends": [1.0, 1.0]}),
    ("circular", {"ends": [0.0, float("inf")]}),
    ("circular", {"ends": [0.0, "1"]}),
    ("circular steps", {"grid": {"origin": 0, "step": 1, "decimals": 0, "count": 10**9}}),
    ("stepped", {"grid": None}),
    ("stepped", {"grid": {"origin": 0, "step": 0, "decimals": 0, "count": 3}}),
    ("integer", {"type": "date32[day]"}),
    ("datetime", {"type": "int64"}),
    ("categorical", {"levels": []}),
    ("categorical", {"levels": ["x", "x", "zz"]}),
    ("categorical", {"levels": [None, "y", "zz"]}),
    ("categorical", {"levels": [1, 2, 3]}),
    ("constant", {"value": [7]}),
    ("constant", {"value": "seven"}),
    ("constant", {"role": "model"}),
]


@pytest.mark.parametrize(("kind", "changes"), BAD)
def test_json_is_not_trusted(kind: str, changes: dict[str, Any]) -> None:
    described = {**column_of(kind)[0].to_json(), **changes}
    for cut in (described, {key: value for key, value in described.items() if value is not None}):
        with pytest.raises(TableError):
            Schema.from_json([cut, column_of("real")[0].to_json() | {"name": "other"}])


@dataclass(frozen=True, kw_only=True)
class Clock(Column):
    """A codec for this test: times of day such as 23:59, as minutes on a circle."""

    kind: str = "clock"
    likelihood_term: ClassVar[str] = "mass per minute"
    axis_step: ClassVar[float] = 1.0

    @property
    def turn(self) -> tuple[float, float]:
        return 0.0, 1440.0

    def numbers(self, array: pa.Array, *, strict: bool = True) -> np.ndarray:
        texts = array.to_pylist()
        if wrong := [text for text in texts if not re.fullmatch("[0-2][0-9]:[0-5][0-9]", text)]:
            raise TableError(f"column {self.name!r} should hold times of day, found {wrong[0]!r}")
        return np.array([60.0 * int(text[:2]) + int(text[3:]) for text in texts])

    def decode(self, y: np.ndarray) -> pa.Array:
        minutes = np.mod(np.floor(y), 1440).astype(int).tolist()
        return pa.array([f"{minute // 60:02d}:{minute % 60:02d}" for minute in minutes])

    def axis_values(self, array: pa.Array) -> np.ndarray:
        return self.numbers(array)


def clock(facts: Facts, requested: str | None, role: Role) -> Column | None:
    return Clock(facts.name, type_name(facts.type), role) if requested == "clock" else None


@pytest.fixture
def with_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds(), "clock", ColumnKind("clock", Clock, clock, accepts=is_text, is_circle=True))
    monkeypatch.setattr("cubicflow.tables.schema.inference.KIND_NAMES", [*KIND_NAMES, "clock"])


@pytest.mark.usefixtures("with_clock")
def test_a_new_kind_with_its_own_codec_needs_only_the_codec_and_a_record(tmp_path: Path) -> None:
    """It is fitted beside every kind, scored, drawn, asked, filled, shown and exported."""
    minutes = np.mod(RNG.normal(60, 200, N), 1440).astype(int)
    times = [f"{minute // 60:02d}:{minute % 60:02d}" for minute in minutes]
    rows = pa.table({**VALUES, "time": times})
    parquet.write_table(rows, tmp_path / "t.parquet")
    asked = {"time": "clock", "circular": "circular:-180:180", "circular steps": "circular:24"}
    options = TableOptions(kinds=asked, drop=("dropped",))
    how: dict[str, Any] = {"steps": 8, "seed": 0, "device": "cpu", "progress": False}
    settings = {"hidden_features": 16, "num_blocks": 1, "num_bins": 4}
    fitted = fit_table(tmp_path / "t.parquet", tmp_path / "run", options, settings, **how).fitted
    assert fitted.schema["time"].describe() == "mass per minute"
    again = FittedTable.load(tmp_path / "run")
    np.testing.assert_allclose(again.score(rows), fitted.score(rows), rtol=1e-6)
    drawn = again.sample(50, ["time>=12:00"], seed=0)
    assert all("12:00" <= time <= "23:59" for time in drawn["time"].to_pylist())
    given = {name: rows[name][0].as_py() for name in rows.column_names if name not in ("time", "dropped")}
    night = again.probability({**given, "time": ("22:00", "06:00")}).values / again.probability(given).values
    found = again.conditional("time", given)
    every = [f"{hour:02d}:{minute:02d}" for hour in range(24) for minute in range(60)]
    masses = dict(zip(every, found.masses(every).masses, strict=True))
    assert sum(masses.values()) == pytest.approx(1)
    assert sum(masses[time] for time in every if time >= "22:00" or time <= "06:00") == pytest.approx(float(night))
    holes = rows.set_column(rows.column_names.index("time"), "time", pa.nulls(N, pa.string()))
    (filled,) = again.impute(holes[:5], seed=0)
    assert set(filled["time"].to_pylist()) <= set(every)
    y = again.numbers(rows)
    place = [column.name for column in again.schema.model].index("time")
    panel = make_panel(again.schema["time"], y[:, place], y[:, place])
    assert panel.data.shape == (N,)
    axis = axis_of(again.schema["time"], y[:, place], again.model.cells["time"])
    assert (axis.edges[0], axis.edges[-1]) == (0, 1440)
    assert next(column for column in again.encoding()["columns"] if column["name"] == "time")["kind"] == "clock"
    schema = schema_of_context(replace(again.schema["time"], role="context"))
    features = FlowEncoder(schema).context_inputs(y[:, place : place + 1])
    assert features is not None
    assert features.shape == (N, 2)


def test_no_code_outside_of_the_kinds_names_a_codec() -> None:
    """Code asks a column what it is, so that a codec of its own needs no other change."""
    source = Path(__file__).parents[2] / "src" / "cubicflow"
    named = re.compile(r"isinstance\([^)]*\b(Listed|Gridded|Real|Constant|Dropped)\b")
    paths = [path for path in source.rglob("*.py") if path.parent.name != "kinds"]
    assert not [path.name for path in paths if named.search(path.read_text(encoding="utf-8"))]


def test_no_code_outside_of_the_kinds_names_a_kind() -> None:
    """No code branches on the name of a kind, so that a new kind needs no other change."""
    source = Path(__file__).parents[2] / "src" / "cubicflow"
    named = re.compile(r"(?<!dtype)\.kind\s*(==|!=|in\b|not in\b)")
    guilty = [
        path.name
        for folder in ("tables", "estimator", "plots", "cli")
        for path in (source / folder).rglob("*.py")
        if named.search(path.read_text(encoding="utf-8"))
    ]
    assert not guilty


def test_minus_zero_is_zero() -> None:
    values = pa.array([0.0, -0.0, 1.5] * 100)
    schema = infer(in_memory(pa.table({"c": values, "other": OTHER})), TableOptions(kinds={"c": "categorical"})).schema
    assert schema["c"].encode(pa.array([-0.0, 0.0])).tolist() == [schema["c"].labels.index("0.0")] * 2


def test_half_floats_can_be_words() -> None:
    values = pa.array(np.array([0.5, 2.0, 1.5] * 100, dtype=np.float16))
    schema = infer(in_memory(pa.table({"c": values, "other": OTHER})), TableOptions(kinds={"c": "categorical"})).schema
    assert schema["c"].decode(schema["c"].encode(values)).equals(values)


def test_the_error_about_a_kind_is_short() -> None:
    """An untrusted file may hold megabytes in place of a kind."""
    with pytest.raises(TableError, match=r"has the unknown kind .*; the kinds are real") as refused:
        column_from_json({"name": "x" * 10**6, "kind": [10**1000] * 10**4})
    assert len(str(refused.value)) < 1000
