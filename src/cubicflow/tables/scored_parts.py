"""The scores of a whole table, and of each part of it, from one pass."""

from __future__ import annotations

from typing import NamedTuple

from cubicflow.tables.fitted import FittedTable
from cubicflow.tables.honest_score import Score, ScoreOfRows, Used
from cubicflow.tables.source import PARTS, Missing, Table


class ScoredParts(NamedTuple):
    """Scores of all rows and, as the fit split them, of the rows of each part; and how many rows were used.

    The parts mean something where the table is the one that was fitted.
    """

    whole: Score
    parts: dict[str, Score]
    used: Used


def score_parts(fitted: FittedTable, table: Table, missing: Missing | str | None = None) -> ScoredParts:
    """Score a table. Rows that lack a value are left out or refused, as ``missing`` says.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cubicflow.tables import fit_table, open_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = "".join(f"{i % 7},{i / 8}\\n" for i in range(100))
    ...     _ = Path(folder, "t.csv").write_text("day,hours\\n" + rows)
    ...     result = fit_table(f"{folder}/t.csv", f"{folder}/run", steps=5, progress=False)
    ...     scored = score_parts(result.fitted, open_table(f"{folder}/t.csv"))
    >>> scored.whole.model.rows, scored.parts["test"] == result.score, str(scored.used)
    (100, True, 'all 100 rows are used, 200 values')
    """
    whole, parts = ScoreOfRows(), [ScoreOfRows() for _ in PARTS]
    read = gaps = 0
    for scores in fitted.score_table(table, missing, weights=True, independent=True):
        read, gaps = read + scores.read, gaps + scores.gaps
        seen = scores.log_likelihood, scores.independent, scores.weights
        whole.see(*seen)
        for i, part in enumerate(parts):
            part.see(*(None if values is None else values[scores.parts == i] for values in seen))  # type: ignore[arg-type] # scores are never None
    columns = sum(column.role != "dropped" and column.name in table.types for column in fitted.schema.columns)
    used = Used(read, whole.rows, columns, gaps)
    return ScoredParts(whole.result(), {name: part.result() for name, part in zip(PARTS, parts, strict=True)}, used)
