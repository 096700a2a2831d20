"""Two models on the same rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cubicflow.tables.errors import TableError
from cubicflow.tables.fitted import FittedTable
from cubicflow.tables.options import Missing
from cubicflow.tables.source import Table
from cubicflow.tables.summary import Mean, MeanOfRows

TEST = 2


class Comparison(NamedTuple):
    """Mean log likelihoods of both models and of the difference, second minus first; ``held_out`` if on test rows."""

    first: Mean
    second: Mean
    difference: Mean
    held_out: bool


def compare_runs(first: FittedTable, second: FittedTable, table: Table, missing: Missing | None = None) -> Comparison:
    """The paired difference per row. Rows that either model was trained on, or chosen by, are left out."""
    _check_comparable(first, second)
    missing = missing or ("drop" if "drop" in (first.missing, second.missing) else "error")
    trained = [model for model in (first, second) if model.is_source(table)]
    means = [MeanOfRows() for _ in range(3)]
    scores = (model.score(table, missing, weights=True) for model in (first, second))
    for one, other in zip(*scores, strict=True):
        if not np.array_equal(one.numbers, other.numbers):
            raise TableError(
                "the models need different columns, and rows lack values in some of them; fill those first"
            )
        chosen = np.ones(len(one.numbers), dtype=np.bool_)
        for model in trained:
            chosen &= model.split.parts_of(one.numbers) == TEST
        a, b = one.log_likelihood[chosen], other.log_likelihood[chosen]
        weights = None if one.weights is None else one.weights[chosen]
        for mean, values in zip(means, (a, b, b - a), strict=True):
            mean.see(values, weights)
    if not means[0].rows:
        raise TableError(f"{table.path}: no row is left to compare: all were used in training one of the models")
    first_mean, second_mean, difference = (mean.result() for mean in means)
    if not difference.weight:
        raise TableError(f"{table.path}: there is nothing to compare: every row that is left has weight 0")
    return Comparison(first_mean, second_mean, difference, bool(trained))


def _check_comparable(first: FittedTable, second: FittedTable) -> None:
    """Likelihoods compare only if they count the same things."""
    statements = [{column.name: column.statement() for column in model.schema.columns} for model in (first, second)]
    for name in [*statements[0], *(name for name in statements[1] if name not in statements[0])]:
        one, other = (found.get(name, "nothing: there is no such column") for found in statements)
        if one != other:
            raise TableError(
                f"the two likelihoods cannot be compared: column {name!r} counts {one} in the first model, {other} in "
                "the second"
            )
