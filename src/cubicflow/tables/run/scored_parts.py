"""Scores of a whole table and of each part of its split, from one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.fitted import FittedTable, Scores
from cubicflow.tables.read.table import Table, in_memory
from cubicflow.tables.run.verdict import Score, ScoreOfRows, Used
from cubicflow.tables.schema.split import PARTS, RowSample
from cubicflow.tables.schema.usable_rows import Missing, pieces


class ScoredParts(NamedTuple):
    """Scores of all rows and of the rows of each part of the fit's split, and the number of rows used.

    The parts are meaningful only if the table is the fitted one.
    """

    whole: Score
    parts: dict[str, Score]
    used: Used
    unseen: Mapping[str, int] = MappingProxyType({})  # values that no training row had, by column


def score_parts(
    fitted: FittedTable, table: Table, missing: Missing | str | None = None, *, unseen: str = "count"
) -> ScoredParts:
    """Score a table, and each part of its split.

    ``missing`` says how to handle rows that lack a value, and ``unseen`` how to handle values that no training row had.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cubicflow.tables import fit_table, open_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = "".join(f"{i % 7},{i / 8}\\n" for i in range(100))
    ...     _ = Path(folder, "t.csv").write_text("day,hours\\n" + rows)
    ...     result = fit_table(f"{folder}/t.csv", f"{folder}/run", steps=5, progress=False)
    ...     scored = score_parts(result.fitted, open_table(f"{folder}/t.csv"))
    >>> scored.whole.model.rows, str(scored.parts["test"].model) == str(result.test), str(scored.used)
    (100, True, 'all 100 rows are used, 200 values')
    """
    whole, parts = ScoreOfRows(), [ScoreOfRows() for _ in PARTS]
    read = gaps = 0
    counts: Counter[str] = Counter()
    for scores in fitted.score_table(table, missing, weights=True, independent=True, unseen=unseen):
        read, gaps = read + scores.read, gaps + scores.gaps
        counts.update(scores.unseen)
        _update(whole, scores)
        for i, part in enumerate(parts):
            _update(part, scores, scores.parts == i)
    return _scored(whole, parts, Used(read, whole.rows, len(_columns(fitted, table)), gaps), counts)


def score_some(fitted: FittedTable, table: Table, most: int) -> ScoredParts:
    """Score at most ``most`` rows of each part, for tables that take long to score.

    ``used`` in the result counts all rows of the table.
    """
    whole, parts = ScoreOfRows(), [ScoreOfRows() for _ in PARTS]
    samples: dict[int, RowSample] = {}
    counts: Counter[str] = Counter()
    read = used = gaps = 0
    columns = _columns(fitted, table)
    for piece in pieces(table, columns, fitted.missing):
        read, used, gaps = read + piece.read, used + len(piece.numbers), gaps + piece.gaps
        labels = fitted.split.parts_of(piece.numbers)
        for i in np.unique(labels).tolist():
            chosen = labels == i
            samples.setdefault(i, RowSample(most)).update(piece.batch.filter(pa.array(chosen)), piece.numbers[chosen])
    for i, sample in samples.items():
        rows = in_memory(sample.table(), table.name, is_text=table.is_text)
        for scores in fitted.score_table(rows, weights=True, independent=True):
            counts.update(scores.unseen)
            _update(whole, scores)
            _update(parts[i], scores)
    return _scored(whole, parts, Used(read, used, len(columns), gaps), counts)


def _update(score: ScoreOfRows, scores: Scores, chosen: NDArray[np.bool_] | slice = slice(None)) -> None:
    """Add the chosen rows to a score."""
    independent, weights = (None if found is None else found[chosen] for found in (scores.independent, scores.weights))
    score.update(scores.log_likelihood[chosen], independent, weights)


def _columns(fitted: FittedTable, table: Table) -> list[str]:
    """Return the columns to read, including the weights if the table has them."""
    weights_column = fitted.schema.weights
    return fitted.schema.check(table, weights=weights_column is not None and weights_column.name in table.types)


def _scored(whole: ScoreOfRows, parts: list[ScoreOfRows], used: Used, unseen: Counter[str]) -> ScoredParts:
    by_name = {name: part.result() for name, part in zip(PARTS, parts, strict=True)}
    return ScoredParts(whole.result(), by_name, used, unseen)
