"""Copies that a fit should know of: columns that equal other columns, and rows that occur in several parts.

A rule (:mod:`cubicflow.tables.model.rules`) lists the values of a determinant, so a rule needs values that repeat.
Real numbers hardly repeat. For a copy of a column of real numbers, the constraint ``original = copy`` replaces the
rule. The scores of validation and test rows that are exact copies of training rows partly measure memorisation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubicflow.seeds import scramble
from cubicflow.tables.arrow_types import Floats, is_number
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.model.table_model import TableModel
from cubicflow.tables.query.constraints import LinearConstraint, number_of, read_constraint
from cubicflow.tables.table_error import TableError
from cubicflow.tables.table_rows import TableRows

FEWEST_VALUES = 20  # different values; two columns of few values may be equal by chance in a small table
FIRST_ROWS = 256  # rows that are compared first; all rows are compared only if these rows are equal
ROWS_AT_ONCE = 1 << 16

# --- copies of columns ---


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


# --- copies of rows ---


class CopiedRows(NamedTuple):
    """The number of ``held_out`` rows, of ``copies`` of training rows among them, and of ``distinct`` held-out rows.

    >>> CopiedRows(20, 3, 20).message().split(",")[0]
    '3 of 20 validation and test rows are exact copies of training rows'
    """

    held_out: int
    copies: int
    distinct: int

    def message(self) -> str | None:
        """Return a sentence for the user; None without copies."""
        if not self.copies:
            return None
        counted = f"{self.copies:,} of {self.held_out:,} validation and test rows are exact copies of training rows"
        # If the table is a list of rows written twice, both copies of a row are rarely in the held-out fifth, so most
        # held-out rows are distinct.
        if self.distinct <= self.held_out / 2:
            return f"{counted}: rows repeat in this table, only {self.distinct:,} held-out rows are distinct"
        memorised = "so their scores partly show what was memorised"
        return f"{counted}, {memorised}; if rows were written twice, remove the duplicates"


def copied_rows(train: TableRows, others: Sequence[TableRows]) -> CopiedRows:
    """Count the copies of training rows among other rows, by 64-bit hashes of all values but the weight.

    In a million rows, the probability that any two different rows have the same hash is below 1e-7. Only the hashes of
    held-out rows are kept in memory.
    """
    held_out = np.concatenate([hashes for rows in others for hashes in _hashes(rows)])
    distinct, rows = np.unique(held_out, return_counts=True)
    copied = np.zeros(len(distinct), dtype=np.bool_)
    for hashes in _hashes(train):
        places = np.minimum(np.searchsorted(distinct, hashes), len(distinct) - 1)
        copied[places[distinct[places] == hashes]] = True
    return CopiedRows(len(held_out), int(rows[copied].sum()), len(distinct))


def _hashes(rows: TableRows) -> Iterator[NDArray[np.uint64]]:
    for first in range(0, rows.num_rows, ROWS_AT_ONCE):
        numbers = rows.plain(first, min(first + ROWS_AT_ONCE, rows.num_rows))
        values = numbers.y if numbers.context is None else np.concatenate([numbers.y, numbers.context], axis=1)
        bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # 0.0 and -0.0 are one value
        hashes = np.zeros(len(bits), dtype=np.uint64)
        for column in bits.T:
            hashes = scramble(hashes ^ column)
        yield hashes
