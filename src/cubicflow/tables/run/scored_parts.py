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
from cubicflow.tables.run.verdicts import Score, ScoreOfRows, Used, score_lines, score_warnings
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

    def lines(self, *, is_source: bool) -> list[str]:
        """Return the scores in words. ``is_source`` says whether the table is the fitted one."""
        if is_source:
            first = ["this is the file that the model was fitted to; only its test rows are new to the model"]
            first += [f"{name:<10} {_counted(part)}" for name, part in self.parts.items()]
        else:
            first = [_counted(self.whole)]
        return [*first, *score_lines(*self._new_and_trained(is_source)), str(self.used)]

    def warnings(self, *, is_source: bool) -> list[str]:
        """Return warnings about a poor fit."""
        return score_warnings(*self._new_and_trained(is_source))

    def _new_and_trained(self, is_source: bool) -> tuple[Score, Score | None]:
        return (self.parts["test"], self.parts["train"]) if is_source else (self.whole, None)


def _counted(score: Score) -> str:
    return f"log likelihood {score.model} over {score.model.rows:,} rows"


class ScoreSums:
    """Sums from which the scores of a table and of its parts are computed. Sums of other rows can be joined to them."""

    def __init__(self) -> None:
        self.whole, self.parts = ScoreOfRows(), [ScoreOfRows() for _ in PARTS]
        self.read = self.gaps = 0
        self.unseen: Counter[str] = Counter()

    def add(self, scores: Scores, parts: NDArray[np.int8]) -> None:
        """Add scored rows, and the part of the split of each of them."""
        self.read, self.gaps = self.read + scores.read, self.gaps + scores.gaps
        self.unseen.update(scores.unseen)
        for sums, chosen in ((self.whole, slice(None)), *((part, parts == i) for i, part in enumerate(self.parts))):
            optional = (None if found is None else found[chosen] for found in (scores.independent, scores.weights))
            sums.update(scores.log_likelihood[chosen], *optional)

    def join(self, other: ScoreSums) -> None:
        """Add the sums of other rows."""
        self.whole.merge(other.whole)
        for part, more in zip(self.parts, other.parts, strict=True):
            part.merge(more)
        self.read, self.gaps = self.read + other.read, self.gaps + other.gaps
        self.unseen.update(other.unseen)

    def result(self, columns: int) -> ScoredParts:
        """Return the scores of a table of which so many columns are read."""
        parts = {name: part.result() for name, part in zip(PARTS, self.parts, strict=True)}
        return ScoredParts(
            self.whole.result(), parts, Used(self.read, self.whole.rows, columns, self.gaps), self.unseen
        )


def score_parts(
    fitted: FittedTable, table: Table, missing: Missing | str | None = None, *, unseen: str = "count"
) -> ScoredParts:
    """Score a table, and each part of its split.

    ``missing`` says how to handle rows that lack a value, and ``unseen`` how to handle values that no training row had.
    """
    sums = ScoreSums()
    for scores in fitted.score_table(table, missing, weights=True, unseen=unseen):
        sums.add(scores, scores.parts)
    return sums.result(len(_columns(fitted, table)))


def score_some(fitted: FittedTable, table: Table, most: int) -> ScoredParts:
    """Score at most ``most`` rows of each part, for tables that take long to score.

    ``used`` in the result counts all rows of the table.
    """
    sums, samples = ScoreSums(), dict[int, RowSample]()
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
        for scores in fitted.score_table(rows, weights=True):
            sums.add(scores, np.full(len(scores.numbers), i, np.int8))
    return sums.result(len(columns))._replace(used=Used(read, used, len(columns), gaps))


def _columns(fitted: FittedTable, table: Table) -> list[str]:
    """Return the columns to read, including the weights if the table has them."""
    weights_column = fitted.schema.weights
    return fitted.schema.check(table, weights=weights_column is not None and weights_column.name in table.types)
