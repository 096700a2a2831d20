"""Constraints at the time of the fit: a check of all rows, and the combinations learned from the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cubicflow.tables.query.constraints import (
    Constraint,
    FixedCombination,
    combinations_of,
    example,
    read_constraint,
)
from cubicflow.tables.read.table import Table
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.usable_rows import Missing, pieces
from cubicflow.tables.table_error import TableError


def learn_constraints(
    texts: Sequence[str], schema: Schema, table: Table, missing: Missing | str
) -> tuple[Constraint, ...]:
    """Return the constraints of texts, with the combinations that the table has.

    Raises:
        TableError: some rows break a constraint. The message gives their number and the first row.
    """
    found: list[Constraint] = [read_constraint(text, schema) for text in texts]
    if not found:
        return ()
    names = list(dict.fromkeys(name for each in found for name in each.names))
    broken, rows_read = [0] * len(found), 0
    first: list[tuple[int, str] | None] = [None] * len(found)
    seen: list[set[tuple[str, ...]]] = [set() for _ in found]
    for piece in pieces(table, schema.check(table), missing):
        rows = {name: piece.batch.column(name) for name in names}
        rows_read += len(piece.batch)
        for i, each in enumerate(found):
            if isinstance(each, FixedCombination):
                seen[i].update(pair for pair in combinations_of(each.names, rows, schema) if None not in pair)
                continue
            wrong = np.flatnonzero(each.broken(rows, schema))
            broken[i] += len(wrong)
            if len(wrong) and first[i] is None:
                row = int(wrong[0])
                first[i] = int(piece.numbers[row]) + 1, example(each, rows, row)
    for each, count, where in zip(found, broken, first, strict=True):
        if where is not None:
            raise TableError(
                f"constraint {each.text!r}: {count:,} of {rows_read:,} rows break it, the first is row {where[0]:,} "
                f"({where[1]}); correct those rows, or leave the constraint out"
            )
    learned = [
        replace(each, allowed=frozenset(pairs)) if isinstance(each, FixedCombination) else each
        for each, pairs in zip(found, seen, strict=True)
    ]
    return tuple(learned)
