"""Scores of a whole table and of each part of its split, from one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class ScoreSums:
    """Sums from which the scores of a table and of its parts are computed. Sums of other rows can be added."""

    whole: ScoreOfRows = field(default_factory=ScoreOfRows)
    parts: tuple[ScoreOfRows, ...] = field(default_factory=lambda: (ScoreOfRows(),) * len(PARTS))
    read: int = 0
    gaps: int = 0
    unseen: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, scores: Scores, parts: NDArray[np.int8]) -> ScoreSums:
        """Return the sums of scored rows, given the part of the split of each of them."""

        def chosen(rows: slice | NDArray[np.bool_]) -> ScoreOfRows:
            optional = (None if found is None else found[rows] for found in (scores.independent, scores.weights))
            return ScoreOfRows.of(scores.log_likelihood[rows], *optional)

        of_parts = tuple(chosen(parts == i) for i in range(len(PARTS)))
        return cls(chosen(slice(None)), of_parts, scores.read, scores.gaps, Counter(scores.unseen))

    def __add__(self, other: ScoreSums) -> ScoreSums:
        parts = tuple(one + more for one, more in zip(self.parts, other.parts, strict=True))
        counts = self.read + other.read, self.gaps + other.gaps, self.unseen + other.unseen
        return ScoreSums(self.whole + other.whole, parts, *counts)

    def result(self, columns: int) -> ScoredParts:
        """Return the scores of a table of which so many columns are read."""
        parts = {name: part.result() for name, part in zip(PARTS, self.parts, strict=True)}
        used = Used(self.read, self.whole.model.rows, columns, self.gaps)
        return ScoredParts(self.whole.result(), parts, used, self.unseen)


def score_parts(
    fitted: FittedTable, table: Table, missing: Missing | str | None = None, *, unseen: str = "count"
) -> ScoredParts:
    """Score a table, and each part of its split.

    ``missing`` says how to handle rows that lack a value, and ``unseen`` how to handle values that no training row had.
    """
    sums = ScoreSums()
    for scores in fitted.score_table(table, missing, weights=True, unseen=unseen):
        sums += ScoreSums.of(scores, scores.parts)
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
            sums += ScoreSums.of(scores, np.full(len(scores.numbers), i, np.int8))
    return sums.result(len(columns))._replace(used=Used(read, used, len(columns), gaps))


def _columns(fitted: FittedTable, table: Table) -> list[str]:
    """Return the columns to read, including the weights if the table has them."""
    weights_column = fitted.schema.weights
    return fitted.schema.check(table, weights=weights_column is not None and weights_column.name in table.types)
