"""What makes a table hard to fit, found before the fit: warnings that name the column and the number."""

from __future__ import annotations

from collections.abc import Mapping

from cubicflow.tables.arrow_types import is_text
from cubicflow.tables.kinds.facts import Facts
from cubicflow.tables.schema import Schema

# A word that has fewer than five rows on average is hardly learned: its share is known to about a half, and what goes
# with it not at all. Below twenty words a column is no identifier, whatever its share of distinct values in a small
# table, and above a thousand the rarest words have few rows in any table.
RARE = 0.2
FEWEST_WORDS, MANY_WORDS = 20, 1000
# The covariance of D columns is singular with D rows or fewer, and a rough guess with a few times as many.
ROWS_PER_COLUMN = 5


def near_identifiers(schema: Schema, facts: Mapping[str, Facts]) -> list[str]:
    """A warning for each column whose words hardly repeat, with its share of distinct values.

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


def too_few_rows(schema: Schema, rows: int) -> list[str]:
    """A warning where the training rows are few beside the columns.

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
    little = f"fewer than {ROWS_PER_COLUMN} rows a column show little of what the columns have to do with one another"
    return [f"{counted}: {little}; leave columns out, or add rows"]
