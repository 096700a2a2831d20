"""Warnings, before a fit, about tables that are hard to fit."""

from __future__ import annotations

from collections.abc import Mapping

from cubicflow.tables.arrow_types import is_text
from cubicflow.tables.kinds.facts import Facts
from cubicflow.tables.schema import Schema

# A word with fewer than five rows is hardly learned: the standard error of its share is about half of the share, and
# its relation to other columns is unknown. A column with fewer than twenty words is not an identifier, even if a small
# table has few rows per word. Above a thousand words, the rarest have few rows in any table.
RARE = 0.2
FEWEST_WORDS, MANY_WORDS = 20, 1000
# The sample covariance of D columns is singular with D rows or fewer, and rough with a few times as many.
ROWS_PER_COLUMN = 5


def near_identifiers(schema: Schema, facts: Mapping[str, Facts]) -> list[str]:
    """Return a warning for each column whose words hardly repeat, with its share of distinct values.

    >>> import pyarrow as pa
    >>> from cubicflow.tables import infer
    >>> from cubicflow.tables.source import MemoryTable
    >>> names = MemoryTable(pa.table({"name": [f"n{i % 30}" for i in range(50)], "size": range(50)}))
    >>> infer(names).warnings[0].split(",")[0]
    "'name' holds 30 different words in 50 rows (60 % of its values are distinct)"
    """
    found = []
    for column in (*schema.model, *schema.context):
        seen = facts[column.name]
        if not is_text(seen.type):
            continue
        words, share = len(seen.distinct), len(seen.distinct) / seen.rows
        if words >= MANY_WORDS or (words >= FEWEST_WORDS and share >= RARE):
            found.append(
                f"{column.name!r} holds {words:,} different words in {seen.rows:,} rows ({100 * share:.0f} % of its "
                "values are distinct), so little can be learned about most of them; if they are names or identifiers, "
                "leave the column out"
            )
    return found


def huge_whole_numbers(schema: Schema, facts: Mapping[str, Facts]) -> list[str]:
    """Return a warning for each real column that would have steps if its largest numbers were smaller.

    >>> import pyarrow as pa
    >>> from cubicflow.tables import infer
    >>> from cubicflow.tables.source import MemoryTable
    >>> found = infer(MemoryTable(pa.table({"a": [float(i) for i in range(49)] + [2.0**64], "b": range(50)})))
    >>> found.warnings[0].split(",")[0]
    "'a' holds whole numbers as large as 1.84467e+19"
    """
    return [
        f"{column.name!r} holds whole numbers as large as {max(seen.smallest, seen.largest, key=abs):.6g}, and beyond "
        "2^53 a double cannot hold every whole number; it is modelled as real numbers, so samples lie also between and "
        "below its values; if the largest are errors or mark missing values, remove them; if they are identifiers, "
        "leave the column out"
        for column in (*schema.model, *schema.context)
        if not column.counts_mass and (seen := facts[column.name]).too_large_for_steps
    ]


def too_few_rows(schema: Schema, rows: int) -> list[str]:
    """Return a warning if there are few training rows for the number of columns.

    >>> import numpy as np, pyarrow as pa
    >>> from cubicflow.tables import infer
    >>> from cubicflow.tables.source import MemoryTable
    >>> wide = MemoryTable(pa.table({f"c{i}": np.arange(50) for i in range(9)}))
    >>> infer(wide).warnings[0].split(":")[0]
    'there are 40 training rows for 9 columns'
    """
    columns = len(schema.model)
    if columns == 1 or rows >= ROWS_PER_COLUMN * columns:
        return []
    counted = f"there are {rows:,} training rows for {columns:,} columns"
    little = f"fewer than {ROWS_PER_COLUMN} rows per column show little of how the columns depend on one another"
    return [f"{counted}: {little}; leave columns out, or add rows"]
