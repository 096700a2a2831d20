"""Rows under a condition meet it, although a sample is rounded to the limits of its column and of its type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from cubicflow.tables import FittedTable, TableError, TableOptions, fit_table

ROWS = 200
Met = Callable[[pd.DataFrame], pd.Series]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    """Return a run of columns with limits: many rows at both ends, bounds, and a type of one byte."""
    folder, rng = tmp_path_factory.mktemp("limits"), np.random.default_rng(0)
    columns = {
        "stars": rng.integers(1, 6, ROWS),  # a list of values, with many rows at both ends
        "bounded": np.clip(rng.poisson(9, ROWS), 0, 20),
        "byte": pa.array(np.clip(255 - rng.geometric(0.02, ROWS), 1, 254), pa.uint8()),
        "other": rng.normal(size=ROWS),
        "day": pa.array(18_262 + rng.integers(0, 90, ROWS), pa.int32()).cast(pa.date32()),
    }
    parquet.write_table(pa.table(columns), folder / "t.parquet")
    options = TableOptions(bounds={"bounded": (0, 20)})
    how = {"steps": 5, "seed": 0, "progress": False, "device": "cpu"}
    return fit_table(folder / "t.parquet", folder / "run", options, {"hidden_features": 8}, **how).fitted


CONDITIONS: dict[str, Met] = {
    "stars!=5": lambda rows: rows["stars"] != 5,
    "stars!=1": lambda rows: rows["stars"] != 1,
    "stars not in 1,3,5": lambda rows: rows["stars"].isin([2, 4]),
    "stars>=4": lambda rows: rows["stars"] >= 4,
    "stars<=4": lambda rows: rows["stars"] <= 4,
    "stars in 2..9": lambda rows: rows["stars"] >= 2,
    "bounded>18": lambda rows: rows["bounded"] > 18,
    "byte>=255": lambda rows: rows["byte"] == 255,
    "byte!=255": lambda rows: rows["byte"] != 255,
    "byte in 250..999": lambda rows: rows["byte"] >= 250,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_meet_conditions_at_the_limits(fitted: FittedTable, condition: str) -> None:
    rows = fitted.sample(4000, [condition], seed=0).to_pandas()
    assert CONDITIONS[condition](rows).all()


@pytest.mark.parametrize("condition", ["stars>=1", "stars<=5", "stars in 0..9", "byte<=255", "bounded>=0"])
def test_a_condition_that_all_rows_meet_has_probability_1(fitted: FittedTable, condition: str) -> None:
    assert float(fitted.probability([condition]).values) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("stars>5", "column 'stars' runs from 1 to 5"),
        ("stars=7", "column 'stars' runs from 1 to 5"),
        ("stars in 6,7", "column 'stars' runs from 1 to 5"),
        ("stars<1", "column 'stars' runs from 1 to 5"),
        ("bounded>20", "column 'bounded' runs from 0 to 20"),
        ("byte>255", "column 'byte' runs from 0 to 255"),
        ("byte in 256..300", "column 'byte' runs from 0 to 255"),
    ],
)
def test_values_beyond_the_limits_are_refused(fitted: FittedTable, condition: str, said: str) -> None:
    with pytest.raises(TableError, match=f"condition '{condition}': {said}; choose values in this range"):
        fitted.probability([condition])


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("day>soon", "column 'day' holds dates, and 'soon' is not a date; give a date, written as 2020-01-0"),
        ("day in 2020-01-01..1.2.2020", "and '1.2.2020' is not a date; give a date"),
        ("day=2020-01-05 12:00", "'2020-01-05 12:00' is not a date"),
        ("bounded>many", "column 'bounded' holds numbers, and 'many' is not a number; give a number, written as "),
        ("other>1e400", "column 'other' holds numbers, and '1e400' is not a number; give a number, written as 0.0"),
        ("other in 0..nan", "'nan' is not a number"),
    ],
)
def test_values_of_another_type_are_refused(fitted: FittedTable, condition: str, said: str) -> None:
    with pytest.raises(TableError) as refused:
        fitted.probability([condition])
    assert f"condition '{condition}': " in str(refused.value)
    assert said in str(refused.value)
