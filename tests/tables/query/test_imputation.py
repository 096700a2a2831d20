"""Imputation changes only gaps, and draws them from the enumerated joint."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cubicflow.tables import FittedTable, TableError, TableOptions, fit_table

from .frames import mixed


def table(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


def test_words_are_drawn_from_the_joint(of_words: FittedTable) -> None:
    """The first and the third column are gaps, with 6 ways to fill them; the other columns are known."""
    row = {"a": None, "b": "b1", "c": None, "d": "d2", "e": "e0"}
    ways = pd.DataFrame([{**row, "a": a, "c": c} for a, c in product(["a0", "a1", "a2"], ["c0", "c1"])])
    p = np.exp(of_words.score(table(ways)))
    filled = of_words.impute(table(pd.DataFrame([row] * 3_000)), seed=0)[0].to_pandas()
    counts = filled.groupby(["a", "c"]).size().reindex(pd.MultiIndex.from_frame(ways[["a", "c"]]), fill_value=0)
    share = p / p.sum()
    error = np.sqrt(share * (1 - share) / 3_000)
    assert (np.abs(counts.to_numpy() / 3_000 - share) < 4.5 * error).all()
    assert (filled["filled"] == "a,c").all()
    best = of_words.impute(table(pd.DataFrame([row] * 20)), seed=0, most_likely=True)[0].to_pandas()
    for name in "ac":  # 64 particles distinguish probabilities that differ by 0.1 or more
        of_word = ways.assign(p=share).groupby(name)["p"].sum()
        assert (best[name].map(of_word) > of_word.max() - 0.2).all()


def test_only_gaps_change(of_mixed: FittedTable) -> None:
    rng = np.random.default_rng(2)
    rows = mixed(200)
    whole = rows.copy()
    for name in ("town", "county", "size", "legs", "hours", "seen", "planet", "share"):
        rows.loc[rng.random(len(rows)) < 0.3, name] = None
    found = of_mixed.impute(table(rows), draws=2, seed=1)
    assert len(found) == 2
    for filled in (each.to_pandas() for each in found):
        assert list(filled.columns) == [*rows.columns, "filled"]
        assert filled.notna().all().all()
        for name in rows.columns:
            there = rows[name].notna()
            assert (filled.loc[there, name].astype(str) == rows.loc[there, name].astype(str)).all(), name
            named = filled["filled"].str.split(",").apply(lambda names, name=name: name in names)
            assert (named == ~there).all()
        both = filled["filled"].str.contains("town") & filled["filled"].str.contains("county")
        known = set(whole["town"] + whole["county"])
        assert set(filled.loc[both, "town"] + filled.loc[both, "county"]) <= known
        of_county = filled["filled"].str.contains("town") & ~filled["filled"].str.contains("county")
        assert (
            np.mean([town + county in known for town, county in filled.loc[of_county, ["town", "county"]].values])
            > 0.95
        )
    assert not found[0].equals(found[1])
    assert found[0].equals(of_mixed.impute(table(rows), draws=2, seed=1)[0])


def test_later_columns_inform_the_imputation(tmp_path: Path) -> None:
    """The later column hours is about 3 larger than the size. A model learns this within 400 steps."""
    mixed().drop(columns="id").to_csv(tmp_path / "t.csv", index=False)
    how = {"steps": 400, "device": "cpu", "progress": False}
    fitted = fit_table(tmp_path / "t.csv", tmp_path / "run", **how).fitted
    rows = mixed(400).assign(size=np.nan)
    rows = rows[rows["hours"] > 0].reset_index(drop=True)
    filled = fitted.impute(table(rows), seed=0)[0].to_pandas()
    blind = fitted.impute(table(rows.assign(hours=np.nan)), seed=0)[0].to_pandas()
    seeing, guessing = (np.corrcoef(each["size"], rows["hours"])[0, 1] for each in (filled, blind))
    assert seeing > guessing + 0.1


def test_bad_tables_are_refused(of_mixed: FittedTable) -> None:
    with pytest.raises(TableError, match="has a column 'filled'"):
        of_mixed.impute(table(mixed(20).assign(filled=1)))
    with pytest.raises(ValueError, match="number of draws must be a whole number, 1 or more, got 0"):
        of_mixed.impute(table(mixed(20)), draws=0)
    with pytest.raises(TableError, match="'legs' is missing"):
        of_mixed.impute(table(mixed(20).drop(columns="legs")))
    untouched = of_mixed.impute(table(mixed(20).dropna()))[0].to_pandas()
    assert (untouched["filled"] == "").all()


def test_values_keep_constraints_with_context_columns(tmp_path: Path) -> None:
    """The model is hardly trained, so without the constraints it draws most values of x above the limit."""
    rng, rows = np.random.default_rng(0), 600
    limit = rng.integers(0, 6, rows)
    x, fee = rng.integers(0, limit + 1), rng.integers(0, 3, rows)
    frame = pd.DataFrame({"x": x, "fee": fee, "total": fee + limit, "limit": limit})
    frame.to_csv(tmp_path / "t.csv", index=False)
    training = {"steps": 2, "seed": 0, "progress": False, "device": "cpu"}
    options, constraints = TableOptions(context=("limit",)), ["x <= limit", "fee + limit = total"]
    found = fit_table(tmp_path / "t.csv", tmp_path / "run", options, constraints=constraints, **training).fitted
    limits = np.tile(np.arange(6), 50)
    gaps = pa.table({**dict.fromkeys(("x", "fee", "total"), pa.nulls(300, pa.int64())), "limit": limits})
    filled = found.impute(gaps, seed=0)[0].to_pandas()
    assert (filled["x"] <= filled["limit"]).all()
    assert (filled["fee"] + filled["limit"] == filled["total"]).all()
    assert (filled.groupby("limit")["x"].nunique() == np.arange(6) + 1).all()  # every value that the limit allows
    broken = gaps.set_column(0, "x", pa.array(limits + 1))  # the row's own values break one constraint
    kept = found.impute(broken, seed=0)[0].to_pandas()
    assert (kept["x"] == limits + 1).all()
    assert (kept["fee"] + kept["limit"] == kept["total"]).all()
