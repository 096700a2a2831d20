"""The inferred kind of a column, the user's options, and tables that do not match a schema."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from tests.helpers.strict_rows import StrictRows

from cubicflow.cli.arguments import names, pairs, ranges
from cubicflow.tables import Schema, Split, TableError, TableOptions, infer, open_table
from cubicflow.tables.kinds.facts import GridFinder
from cubicflow.tables.model.flow import FlowEncoder

RNG = np.random.default_rng(0)
N = 400


def parquet(folder: Path, **columns: Any) -> Path:
    path = folder / "table.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def kind_of(folder: Path, values: Any, requested_kind: str | None = None) -> str:
    options = TableOptions(kinds={} if requested_kind is None else {"c": requested_kind})
    return infer(open_table(parquet(folder, c=values, other=RNG.standard_normal(N))), options).schema["c"].kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (RNG.standard_normal(N), "real"),
        (RNG.standard_normal(N).astype(np.float32), "real"),
        (RNG.integers(0, 50, N), "integer"),
        (RNG.integers(0, 50, N).astype(np.uint8), "integer"),
        (RNG.integers(0, 2, N) == 1, "boolean"),
        (np.round(RNG.standard_normal(N), 2), "stepped"),
        (np.round(RNG.standard_normal(N) * 30, 1).astype(np.float32), "stepped"),
        (np.round(RNG.standard_normal(N), 1).astype(np.float16), "stepped"),
        (RNG.integers(0, 90, N) / 8, "stepped"),
        (RNG.integers(0, 90, N) * 0.1 + 0.2, "stepped"),  # with rounding errors
        (np.log(RNG.integers(1, 9, N)), "levels"),
        (np.full(N, 3.0), "constant"),
        (["same"] * N, "constant"),
        (RNG.choice(["x", "y"], N), "categorical"),
        (pa.array(RNG.choice(["x", "y"], N)).dictionary_encode(), "categorical"),
        (pa.array([dt.date(2020, 1, 1 + i % 28) for i in range(N)]), "datetime"),
        (pa.array(RNG.integers(0, 10**6, N), pa.timestamp("s", "UTC")), "datetime"),
        (pa.array([f"{v:.2f}" for v in RNG.standard_normal(N)]).cast(pa.decimal128(8, 2)), "stepped"),
    ],
)
def test_the_kind_of_a_column_is_inferred(tmp_path: Path, values: Any, kind: str) -> None:
    assert kind_of(tmp_path, values) == kind


@pytest.mark.parametrize(
    ("values", "requested_kind", "kind"),
    [
        (RNG.integers(0, 50, N), "real", "real"),
        (RNG.integers(0, 5, N), "categorical", "categorical"),
        (RNG.integers(0, 2, N), "boolean", "boolean"),
        (RNG.integers(0, 50, N).astype(float), "integer", "integer"),
        (np.round(RNG.standard_normal(N), 2), "real", "real"),
        (RNG.choice(["x", "y"], N), "real", "cannot be real: it holds text such as 'x', 'y'"),
        (RNG.standard_normal(N), "integer", "holds fractions"),
        (RNG.standard_normal(N), "stepped", "have no common step"),
        (RNG.standard_normal(N), "datetime", "write dates as"),
        (RNG.standard_normal(N), "categorical", "too many different values"),
        (RNG.standard_normal(N), "constant", "is not constant"),
        (RNG.standard_normal(N), "number", "should be one of real"),
    ],
)
def test_a_requested_kind_is_used_or_refused(tmp_path: Path, values: Any, requested_kind: str, kind: str) -> None:
    if " " in kind:
        with pytest.raises(TableError, match=kind):
            kind_of(tmp_path, values, requested_kind)
    else:
        assert kind_of(tmp_path, values, requested_kind) == kind


@given(
    st.integers(-1000, 1000),
    st.sampled_from([1, 2, 5, 25, 254]),
    st.integers(0, 3),
    st.sets(st.integers(0, 300), min_size=12),
    st.sampled_from([np.float64, np.float32]),
)
def test_a_grid_is_found_exactly(origin: int, step: int, decimals: int, codes: set[int], dtype: Any) -> None:
    """The reference is a brute-force greatest common divisor of whole numbers."""
    whole = np.array([origin + step * code for code in codes])
    values = (whole / 10**decimals).astype(dtype).astype(np.float64)
    finder = GridFinder(float(np.finfo(dtype).eps))
    for part in np.array_split(values, 3):
        finder.see(part)
    grid = finder.grid()
    assert grid is not None
    expected = int(np.gcd.reduce(whole - whole.min()))
    assert grid.width == pytest.approx(expected / 10**decimals, rel=1e-12)
    found, fits = grid.codes(values, float(np.finfo(dtype).eps))
    assert fits.all()
    np.testing.assert_array_equal(grid.values(found).astype(dtype), (whole / 10**decimals).astype(dtype))
    assert grid.count == (whole.max() - whole.min()) // expected + 1


def test_words_are_ordered_by_a_dependent_number(tmp_path: Path) -> None:
    word = RNG.choice(["small", "large", "medium"], N)
    size = np.array([{"small": 0.0, "medium": 3.0, "large": 9.0}[w] for w in word]) + RNG.standard_normal(N)
    levels = infer(open_table(parquet(tmp_path, word=word, size=size))).schema["word"].levels
    assert levels in (("small", "medium", "large"), ("large", "medium", "small"))


def test_hard_limits(tmp_path: Path) -> None:
    """Zero and ends with many values are limits. The thin end of a tail is no limit."""
    columns = {
        "count": RNG.poisson(3, N),
        "stars": RNG.integers(1, 6, N),
        "age": np.round(RNG.normal(40, 9, N)).astype(int),
    }
    schema = infer(open_table(parquet(tmp_path, **columns))).schema
    assert schema["stars"].map.limits == (0, 5)
    assert schema["count"].map.limits == (0, np.inf)
    assert schema["age"].map.limits == (-np.inf, np.inf)


def test_bounds_and_transforms(tmp_path: Path) -> None:
    path = parquet(tmp_path, share=RNG.uniform(0, 1, N), pay=np.exp(RNG.normal(9, 2, N)), n=RNG.integers(0, 9, N))
    good = infer(
        open_table(path), TableOptions(bounds={"share": (0, 1), "n": (-1, 20)}, transforms={"pay": "log"})
    ).schema
    assert good["share"].map.limits == (0, 1)
    assert good["pay"].map.limits[0] == 0
    assert good["n"].map.limits == (-1, 21)
    for options, said in (
        ({"bounds": {"share": (0.5, 1)}}, "on or beyond the bounds 0.5:1"),
        ({"bounds": {"n": (1, 20)}}, "beyond its bounds 1:20"),
        ({"bounds": {"share": (1, 0)}}, "low < high"),
        ({"transforms": {"share": "sqrt"}}, "log or asinh"),
        ({"transforms": {"share": "log"}, "bounds": {"share": (0, 1)}}, "a transform and bounds"),
        ({"transforms": {"shore": "log"}}, "no column 'shore'"),
        ({"drop": ("n",), "context": ("n",)}, "both drop and context"),
        ({"drop": ("n", "pay", "share")}, "keep at least one"),
        ({"context": ("n", "pay", "share")}, "nothing is left to model"),
        ({"missing": "fill"}, "one of error, drop, model"),
    ):
        with pytest.raises(TableError, match=said.replace("(", r"\(")):
            infer(open_table(path), TableOptions(**options))


def test_long_tails_get_asinh_with_a_note(tmp_path: Path) -> None:
    path = parquet(tmp_path, tail=RNG.standard_cauchy(N) ** 5, other=RNG.random(N))
    found = infer(open_table(path))
    assert found.schema["tail"].map.to_json()["shape"] == "asinh"
    assert any("'tail' has very long tails" in note for note in found.notes)


def test_weights_act_like_repeated_rows(tmp_path: Path) -> None:
    """Means and histograms with a weight of 2 equal those with the row twice."""
    x, n, w = RNG.standard_normal(N), RNG.integers(0, 4, N), RNG.integers(1, 3, N)
    weighted = infer(open_table(parquet(tmp_path, x=x, n=n, w=w.astype(float))), TableOptions(weights="w")).schema
    train = Split().parts_of(np.arange(N)) == 0
    xs, ns = np.repeat(x[train], w[train]), np.repeat(n[train], w[train])
    assert weighted["x"].map.mean == pytest.approx(xs.mean(), rel=1e-12)
    assert weighted["x"].map.std == pytest.approx(xs.std(), rel=1e-12)
    shares = np.bincount(ns) * train.sum() / len(ns) + 0.5
    np.testing.assert_allclose(weighted["n"].map.masses, shares / shares.sum(), rtol=1e-12)
    for bad, said in ((-w, "negative"), (w * 0, "all 0"), (["a", "b"] * (N // 2), "should be numbers")):
        with pytest.raises(TableError, match=said):
            infer(open_table(parquet(tmp_path, x=x, w=bad)), TableOptions(weights="w"))


def test_a_schema_survives_json_and_refuses_other_tables(tmp_path: Path) -> None:
    columns = {"x": RNG.standard_normal(N), "n": RNG.poisson(3, N), "c": RNG.choice(["a", "b"], N), "k": np.full(N, 7)}
    schema = infer(open_table(parquet(tmp_path, **columns))).schema
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert again == schema
    encoder = StrictRows(again)

    def message(**changed: Any) -> str:
        table = open_table(
            parquet(tmp_path, **{name: v for name, v in {**columns, **changed}.items() if v is not None})
        )
        with pytest.raises(TableError) as error:
            _ = [encoder.read(batch) for batch in table.batches(again.check(table))]
        return str(error.value)

    assert "column 'x' is missing; column 'y' is new" in message(x=None, y=columns["x"])
    assert "column 'x' should be real (double), is string" in message(x=columns["c"])
    assert "column 'c' holds 'z', which the fitted table did not; it held " in message(c=["z"] * N)
    assert "not whole numbers" in message(n=columns["n"] + 0.5)
    assert "outside of its fitted range, the first is -1" in message(n=columns["n"] - columns["n"].min() - 1)
    assert "was always 7" in message(k=np.full(N, 8))
    assert "infinite" in message(x=np.full(N, np.inf))


def test_a_text_table_must_match_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("n,d\n" + "\n".join(f"{i % 7},2024-01-{1 + i % 20:02}" for i in range(60)))
    schema = infer(open_table(path)).schema
    encoder = FlowEncoder(schema)
    for row, said in (
        ("x,2024-01-01", "'n' should hold whole numbers, found 'x'"),
        ("1.0,2024-01-01\nx,2024-01-01", "'n' should hold whole numbers, found 'x'"),
        ("1,soon", "date-times in steps of 1 day counted from 2024-01-01, found 'soon'"),
    ):
        path.write_text(f"n,d\n{row}\n")
        (batch,) = open_table(path).batches()
        with pytest.raises(TableError, match=said):
            encoder.read(batch)
    path.write_text("n,d\n1.0,2024-03-01\n")
    (batch,) = open_table(path).batches()
    assert encoder.read(batch).y[0].tolist() == [1.0, 60.0]


def test_options_from_text() -> None:
    assert pairs("--transform", ["a=log", "b=c=asinh"]) == {"a": "log", "b=c": "asinh"}
    assert ranges("--bounds", ["a=0:1", "b=:2.5"]) == {"a": (0.0, 1.0), "b": (-np.inf, 2.5)}
    assert names(["a, b", "c"]) == ("a", "b", "c")
    for text in ("a", "a=", "=log"):
        with pytest.raises(ValueError, match="takes column=value"):
            pairs("--transform", [text])
    for text in ("a=1", "a=:", "a=x:y"):
        with pytest.raises(ValueError, match="takes column=low:high"):
            ranges("--bounds", [text])


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(0, 2**40))
def test_splits_are_exact_and_do_not_depend_on_the_batches(seed: int, start: int) -> None:
    split = Split(seed)
    start -= start % 10
    parts = split.parts_of(np.arange(start, start + 1000))
    assert np.bincount(parts).tolist() == [800, 100, 100]
    np.testing.assert_array_equal(parts[137:512], split.parts_of(np.arange(start + 137, start + 512)))
    assert Split.from_json(split.to_json()) == split
