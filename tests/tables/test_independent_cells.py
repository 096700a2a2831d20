"""Scores of independent columns, for comparison with a model of columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cubicflow.tables import FittedTable, fit_table
from cubicflow.tables.model.cell_encoder import CellEncoder
from cubicflow.tables.schema.plain_rows import Numbers
from cubicflow.tables.table_error import TableError


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    """Fit a table of words with gaps and of steps for one training step."""
    folder = tmp_path_factory.mktemp("independent")
    rng = np.random.default_rng(0)
    word = rng.choice(["a", "b", None], 400, p=[0.6, 0.3, 0.1])
    pd.DataFrame({"word": word, "size": rng.integers(0, 40, 400)}).to_csv(folder / "t.csv", index=False)
    result = fit_table(folder / "t.csv", folder / "run", steps=1, seed=0, device="cpu", progress=False)
    assert result.score.gain is not None
    return FittedTable.load(folder / "run", "cpu")


def test_probabilities_sum_to_one_and_follow_the_training_frequencies(fitted: FittedTable) -> None:
    """The sum is over all words, the gap, and all steps between the limits."""
    words, sizes = [0.0, 1.0, np.nan], np.arange(40.0)
    y = np.array([[word, size] for word in words for size in sizes])
    scores = fitted.model.score(Numbers(y, None, None)).baseline
    assert scores is not None
    masses = np.exp(scores).reshape(len(words), len(sizes))
    unseen = fitted.model.laws().encoder.cells["word"].unseen, fitted.model.laws().encoder.cells["size"].unseen
    assert masses.sum() == pytest.approx((1 - unseen[0]) * (1 - unseen[1]), abs=1e-6)
    # The columns are independent: the joint is the product of its margins.
    expected = np.outer(masses.sum(1), masses.sum(0)) / masses.sum()
    assert np.allclose(masses, expected, rtol=1e-9)
    levels = [*fitted.schema.model[0].levels, None]  # type: ignore[attr-defined] # a column of words
    shares = dict(zip(levels, masses.sum(1) / masses.sum(), strict=True))
    assert shares == pytest.approx({"a": 0.6, "b": 0.3, None: 0.1}, abs=0.07)  # the error of shares of 320 rows


def test_shares_are_saved_and_checked(fitted: FittedTable) -> None:
    kept = fitted.model.laws().encoder.to_json()
    again = CellEncoder.from_json(fitted.schema, kept)
    assert again.independent.shares == fitted.model.laws().encoder.independent.shares
    for shares in (None, [], {}, {"word": ["x"]}, {**kept["shares"], "word": [0.5, 0.5, 0.5]}, {"word": [1.0]}):
        with pytest.raises(TableError):
            CellEncoder.from_json(fitted.schema, {**kept, "shares": shares})
