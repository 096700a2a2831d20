"""The contract of every kind of column. A new kind needs only a class and a place in the registry."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from tests.helpers.strict_rows import StrictRows

from cubicflow.plots.panels import make_panel
from cubicflow.tables import Schema, TableError, TableOptions, infer
from cubicflow.tables.kinds import KIND_NAMES, REGISTRY, column_from_json, kinds
from cubicflow.tables.kinds.categorical import Categorical
from cubicflow.tables.kinds.column import Column, Facts, Role
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
    assert VALUES.keys() == REGISTRY.keys() == {kind.kind for kind in kinds().values()}
    assert [kind for kind in REGISTRY if kind not in KIND_NAMES] == ["circular steps", "levels", "dropped"]


@pytest.mark.parametrize("kind", REGISTRY)
@pytest.mark.parametrize("role", ["model", "context"])
def test_every_kind_keeps_the_contract(kind: str, role: str) -> None:
    if role == "context" and "context" not in kinds()[kind].roles:
        return
    column, values = column_of(kind, role)
    assert type(column) is kinds()[kind]
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


@pytest.mark.parametrize("kind", REGISTRY)
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


class Colour(Categorical):
    """A kind for this test: words such as #ff8800."""

    kind: ClassVar[str] = "colour"

    @classmethod
    def infer(cls, facts: Facts, requested_kind: type[Column] | None, role: Role) -> Column | None:
        are_colours = all(re.fullmatch("#[0-9a-f]{6}", str(word)) for word in facts.distinct)
        return super().infer(facts, None, role) if are_colours and requested_kind in (None, cls) else None

    def describe(self) -> str:
        return f"mass of each of {len(self.levels)} colours"


def test_a_new_kind_needs_only_a_class_and_a_place_in_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds(), "colour", Colour)
    monkeypatch.setattr("cubicflow.tables.schema.inference.KIND_NAMES", [*KIND_NAMES, "colour"])
    rows = pa.table({"paint": RNG.choice(["#ff8800", "#00ff00"], N).tolist(), "word": VALUES["categorical"]})
    for told in ({}, {"paint": "colour"}):
        schema = infer(in_memory(rows), TableOptions(kinds=told)).schema
        assert [column.kind for column in schema.columns] == ["colour", "categorical"]
    schema = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert schema["paint"].describe() == "mass of each of 2 colours"
    encoder = StrictRows(schema)
    assert encoder.decode_numbers(encoder.read(rows.to_batches()[0]).y)["paint"].equals(rows["paint"].combine_chunks())


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
