"""Comparison of two fitted tables on the same rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cubicflow.tables.fitted import FittedTable, score_all
from cubicflow.tables.read.table import Table
from cubicflow.tables.run.means import Mean, MeanOfRows
from cubicflow.tables.schema.split import PARTS
from cubicflow.tables.schema.usable_rows import Missing
from cubicflow.tables.table_error import TableError


class Comparison(NamedTuple):
    """Mean log likelihoods of both models, and of the difference, second minus first.

    ``held_out`` is true if only test rows were compared.
    """

    first: Mean
    second: Mean
    difference: Mean
    held_out: bool

    def lines(self, first: object, second: object) -> list[str]:
        """Return the comparison in words, with names for the two models.

        >>> Comparison(Mean(9, -3.0, 0.4), Mean(9, -2.0, 0.4), Mean(9, 1.0, 0.2), False).lines("old", "new")[-1]
        'new is better'
        """
        gap = self.difference
        if math.isnan(gap.error):
            verdict = "at least two rows are needed to say which model is better"
        elif abs(gap.mean) <= gap.error:
            verdict = "neither is better: the difference is within the error"
        else:
            verdict = f"{second if gap.mean > 0 else first} is better"
        return [
            *(["a model was fitted to this file, so only test rows are compared"] if self.held_out else []),
            f"{first}: {self.first}",
            f"{second}: {self.second}",
            f"difference, second minus first: {gap} over {gap.rows:,} rows",
            verdict,
        ]


def compare_runs(
    first: FittedTable, second: FittedTable, table: Table, missing: Missing | str | None = None
) -> Comparison:
    """Return the paired difference of the log likelihoods, second minus first, averaged over rows.

    If a model was fitted to this table, only its test rows are compared.
    """
    _check_comparable(first, second)
    models = (first, second)
    missing = missing or _strictest(first.missing, second.missing)
    trained = [i for i, model in enumerate(models) if model.is_source(table)]
    means = [MeanOfRows()] * 3
    for scores in score_all(models, table, missing, weights=True):
        chosen = np.ones(len(scores[0].numbers), dtype=np.bool_)
        for i in trained:
            chosen &= scores[i].parts == PARTS.index("test")
        a, b = (found.log_likelihood[chosen] for found in scores)
        weights = None if scores[0].weights is None else scores[0].weights[chosen]
        means = [mean + MeanOfRows.of(values, weights) for mean, values in zip(means, (a, b, b - a), strict=True)]
    if not means[0].rows:
        raise TableError(
            f"{table.name}: no row is left to compare; give rows that are not training or validation rows of the models"
        )
    first_mean, second_mean, difference = (mean.result() for mean in means)
    if not difference.weight:
        raise TableError(
            f"{table.name}: no row is left to compare: every remaining row has weight 0; give some rows a positive "
            "weight"
        )
    return Comparison(first_mean, second_mean, difference, bool(trained))


def _check_comparable(first: FittedTable, second: FittedTable) -> None:
    """Raise TableError if the likelihoods of the two models count different things."""
    statements = [{column.name: column.describe() for column in model.schema.columns} for model in (first, second)]
    for name in [*statements[0], *(name for name in statements[1] if name not in statements[0])]:
        one, other = (found.get(name, "nothing (the column is absent)") for found in statements)
        if one != other:
            raise TableError(
                f"the two likelihoods cannot be compared: column {name!r} counts {one} in the first model, and "
                f"{other} in the second; fit both with the same options"
            )


def _strictest(first: Missing, second: Missing) -> Missing:
    """Return the way to handle rows with missing values that both models support."""
    if first is second:
        return first
    return Missing.DROP if Missing.DROP in (first, second) else Missing.ERROR
