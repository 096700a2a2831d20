"""Messages in Python name no command-line option; messages on the command line do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.helpers.options import option_of
from tests.helpers.strict_rows import StrictRows

import cubicflow as cf
from cubicflow.files import OutputError
from cubicflow.tables import Split, TableError, TableOptions, infer
from cubicflow.tables.read.table import in_memory
from cubicflow.tables.run.output import check_output

RNG = np.random.default_rng(0)
N = 60
GOOD = {"x": RNG.standard_normal(N), "n": RNG.integers(0, 9, N), "word": RNG.choice(["a", "b"], N).tolist()}


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, str | None]] = [
    ({"id": [f"name {i}" for i in range(N)]}, {}, "nothing to learn from it; leave it out", "--drop id"),
    ({"id": [[1]] * N}, {}, "these do not: 'id'", "--drop id"),
    ({"id": pa.nulls(N)}, {}, "'id' has no values at all; leave it out", "--drop id"),
    ({"id": [np.inf, *range(N - 1)]}, {}, "or leave the column out", "--drop id"),
    ({"id": [1e300, *range(N - 1)]}, {}, "or leave the column out", "--drop id"),
    ({"id": [(-1) ** i * (2**62 + i) for i in range(N)]}, {}, "spans more than 2^53 steps", "--drop id"),
    ({"id": [None, *range(N - 1)]}, {}, "1 row lacks a value", "--missing drop"),
    ({}, {"transforms": {"x": "log"}}, "has no logarithm", "--transform x=asinh"),
    ({}, {"transforms": {"word": "log"}}, "a transform applies to numbers, but column 'word' is categorical", None),
    ({}, {"bounds": {"word": (0, 1)}}, "bounds apply to numbers, but column 'word' is categorical", None),
    ({}, {"bounds": {"x": (0, 1)}}, "give bounds that lie outside of all values", None),
    ({}, {"drop": ("n",), "context": ("n",)}, "named in both drop and context", None),
    ({}, {"drop": ("n",), "weights": "n"}, "named in both drop and weights", None),
    ({}, {"missing": "fill"}, "missing should be one of error, drop, model", None),
    ({}, {"kinds": {"x": "number"}}, "should be one of real", None),
]


@pytest.mark.parametrize(("columns", "options", "said", "option"), REFUSED)
def test_a_table_is_refused_in_plain_words(
    columns: dict[str, Any], options: dict[str, Any], said: str, option: str | None
) -> None:
    with pytest.raises(TableError) as refused:
        infer(in_memory(pa.table({**GOOD, **columns})), TableOptions(**options))
    assert said in str(refused.value)
    assert "--" not in str(refused.value)
    assert option_of(refused.value) == option


def test_zero_weights_are_refused_in_plain_words() -> None:
    weights = np.where(Split().parts_of(np.arange(N)) == 0, 0.0, 1.0)
    with pytest.raises(TableError, match="choose other training rows by another seed") as refused:
        infer(in_memory(pa.table({**GOOD, "w": weights})), TableOptions(weights="w"))
    assert "--" not in str(refused.value)
    assert option_of(refused.value) == "--seed"


def test_values_are_refused_in_plain_words(tmp_path: Path) -> None:
    schema = infer(in_memory(pa.table(GOOD)), TableOptions(bounds={"x": (-9, 9)}, context=("n",))).schema
    encoder = StrictRows(schema)
    with pytest.raises(TableError, match="outside of its fitted range") as outside:
        encoder.read(pa.RecordBatch.from_pydict({"x": [10.0], "n": [1], "word": ["a"]}))
    with pytest.raises(TableError, match="give a value for 'n'") as given:
        encoder.context_from({}, 1)
    (tmp_path / "out.csv").touch()
    with pytest.raises(OutputError, match="or replace it") as there:
        check_output(str(tmp_path / "out.csv"))
    for refused, option in ((outside, "--bounds x=LOW:HIGH"), (given, "--given n=VALUE"), (there, "--overwrite")):
        assert "--" not in str(refused.value)
        assert option_of(refused.value) == option


@pytest.mark.parametrize("estimator", [cf.CubicFlowDensity, cf.CubicFlowConditional])
def test_messages_of_estimators_name_no_option(estimator: Any) -> None:
    targets = () if estimator is cf.CubicFlowDensity else (np.arange(float(N)),)
    for columns, _, said, option in REFUSED:
        if not columns or option == "--missing drop":  # scikit-learn refuses gaps with its own message
            continue
        with pytest.raises(ValueError, match=r"column|lacks values") as refused:
            estimator(1, max_steps=2).fit(pd.DataFrame({**GOOD, **columns}), *targets)
        assert "--" not in str(refused.value), said
    flow = {} if targets else {"model": "flow"}  # a model of columns accepts gaps and unseen words
    good = GOOD if targets else {name: GOOD[name] for name in ("x", "n")}
    with pytest.raises(ValueError, match="lacks values, in 'x'") as refused:
        estimator(1, max_steps=2, **flow).fit(pd.DataFrame({**good, "x": [None, *range(N - 1)]}), *targets)
    assert "--" not in str(refused.value)
    fitted = estimator(1, max_steps=2, random_state=0, **flow).fit(pd.DataFrame(good), *targets)
    score = fitted.score_samples if not targets else fitted.log_prob
    with pytest.raises(ValueError, match=r"column|lacks values") as refused:
        score(pd.DataFrame({**GOOD, "n": np.full(N, -1), "word": ["c"] * N}), *targets)
    assert "--" not in str(refused.value)
