"""A flow refuses conditions on the columns that it models with one message, with and without constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cubicflow.clusters import sample_files
from cubicflow.tables import FittedTable, TableError, TableOptions, fit_table

MESSAGE = "this run is a flow, so conditions can be values of its context columns only"
CONSTRAINTS: tuple[tuple[str, ...], ...] = ((), ("low <= high",))


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    folder, rng = tmp_path_factory.mktemp("flow"), np.random.default_rng(0)
    low, group = rng.normal(size=200), rng.choice(["x", "y"], 200)
    high = low + rng.exponential(size=200)
    pd.DataFrame({"low": low, "high": high, "group": group}).to_csv(folder / "t.csv", index=False)
    training = {"steps": 4, "validate_every": 2, "device": "cpu", "progress": False, "seed": 0}
    settings = {"num_layers": 1, "hidden_features": 8}
    options = TableOptions(context=("group",))
    return fit_table(folder / "t.csv", folder / "run", options, settings, model="flow", **training).fitted


ON_MODELLED: tuple[Sequence[str] | Mapping[str, object], ...] = (
    ["low>3"],
    ["group=x", "low>3"],
    ["group=x", "low=3"],
    {"group": "x", "low": (3, None)},
    {"group": "x", "low": 3},
)


@pytest.mark.parametrize("constraints", CONSTRAINTS)
@pytest.mark.parametrize("given", ON_MODELLED, ids=str)
def test_conditions_on_modelled_columns_are_refused(
    flow: FittedTable, tmp_path: Path, given: Sequence[str], constraints: tuple[str, ...]
) -> None:
    with pytest.raises(TableError, match=MESSAGE):
        flow.sample(20, given, seed=0, constraints=constraints)
    with pytest.raises(TableError, match=MESSAGE):
        sample_files(flow, 20, str(tmp_path / "rows"), given=given, constraints=constraints, seed=0, workers=1)


def test_a_context_column_takes_one_value(flow: FittedTable) -> None:
    with pytest.raises(TableError, match=r"'group!=x': column 'group' is a context column.*; give it one value"):
        flow.sample(20, ["group!=x"], seed=0)
    with pytest.raises(TableError, match=r"context column 'group' is given two values, .* and .*; give one"):
        flow.sample(20, ["group=x", "group=y"], seed=0)


@pytest.mark.parametrize("constraints", CONSTRAINTS)
@pytest.mark.parametrize("given", [["group=x"], {"group": "x"}], ids=str)
def test_values_of_context_columns_are_kept(
    flow: FittedTable, given: Sequence[str], constraints: tuple[str, ...]
) -> None:
    rows = flow.sample(50, given, seed=0, constraints=constraints).to_pandas()
    assert set(rows["group"]) == {"x"}
    assert not constraints or (rows["low"] <= rows["high"]).all()
