"""Columns of numbers that are copies of other columns: equal in every training row.

A rule (:mod:`cubicflow.tables.model.rules`) lists the values of a determinant, so a rule needs values that repeat.
Real numbers hardly repeat. For a copy of real numbers, the constraint ``original = copy`` replaces the rule.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cubicflow.tables.arrow_types import Floats, is_number
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.model.table_model import TableModel
from cubicflow.tables.query.constraints import LinearConstraint, number_of, read_constraint
from cubicflow.tables.table_error import TableError

FEWEST_VALUES = 20  # different values; two columns of few values may be equal by chance in a small table
FIRST_ROWS = 256  # rows that are compared first; all rows are compared only if these rows are equal


def find_copies(columns: Sequence[Column], y: Floats) -> list[tuple[str, str]]:
    """Return pairs of columns (original, copy) with equal numbers in all rows of plain numbers (N, D).

    The original is the first of the equal columns. Circular columns, columns with missing values and columns with fewer
    than FEWEST_VALUES different values are left out.

    >>> import pyarrow as pa
    >>> from cubicflow.tables import infer
    >>> from cubicflow.tables.read.table import in_memory
    >>> x = np.random.default_rng(0).normal(size=100)
    >>> columns = infer(in_memory(pa.table({"x": x, "y": x, "z": -x}))).schema.model
    >>> find_copies(columns, np.stack([x, x, -x], axis=1))
    [('x', 'y')]
    """
    numeric = [i for i, c in enumerate(columns) if is_number(c.arrow_type) and not c.is_circle and _is_long(y[:, i])]
    begun = {i: number_of(columns[i], columns[i].decode(y[:FIRST_ROWS, i])) for i in numeric}
    found: list[tuple[str, str]] = []
    for place, i in enumerate(numeric):
        for original in numeric[:place]:
            if not np.array_equal(begun[original], begun[i]):
                continue
            one, other = (number_of(columns[j], columns[j].decode(y[:, j])) for j in (original, i))
            if np.array_equal(one, other):
                found.append((columns[original].name, columns[i].name))
                break
    return found


def copy_constraints(model: TableModel, numbers: Floats) -> list[LinearConstraint]:
    """Return a constraint for every copy in the training rows (N, D + C + weight), unless a rule fixes the copy or its
    original."""
    ruled = {rule.dependent for rule in model.laws().encoder.rules}
    schema, y = model.schema, model.encoder.split(numbers).y
    found = []
    for original, copy in find_copies(schema.model, y):
        if original in ruled or copy in ruled:
            continue
        try:
            constraint = read_constraint(f"{original} = {copy}", schema)
        except TableError:  # a name that a constraint cannot express
            continue
        if isinstance(constraint, LinearConstraint) and constraint.names == (original, copy):
            found.append(constraint)
    return found


def described_copies(copies: Sequence[LinearConstraint]) -> list[str]:
    """Return notes on the copies for the user."""
    return [
        f"{each.names[1]!r} is a copy of {each.names[0]!r} in every training row, and will be in every sample; it adds "
        "no information, so leave one of the two out if you compare scores"
        for each in copies
    ]


def _is_long(y: Floats) -> bool:
    return not np.isnan(y).any() and len(np.unique(y)) >= FEWEST_VALUES
