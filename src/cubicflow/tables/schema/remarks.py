"""Remarks on a table before a fit: identifiers, sorted rows, and warnings about tables that are hard to fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from cubicflow.advice import Advice
from cubicflow.tables.arrow_types import Floats, amounts, is_text
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.kinds.facts import LARGEST, Facts
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.split import BY_TIME
from cubicflow.tables.table_error import some

# A word with fewer than five rows is hardly learned: the standard error of its share is about half of the share, and
# its relation to other columns is unknown. A column with fewer than twenty words is not an identifier, even if a small
# table has few rows per word. Above a thousand words, the rarest have few rows in any table.
RARE = 0.2
FEWEST_WORDS, MANY_WORDS = 20, 1000
# The sample covariance of D columns is singular with D rows or fewer, and rough with a few times as many.
ROWS_PER_COLUMN = 5
# 20 numbers drawn at random from 40 all differ in three of a thousand draws, and more numbers in far fewer draws. So
# whole numbers that never repeat and fill half of their range were counted, not measured.
FEWEST_NUMBERS = 20
FILLED = 0.5
FEWEST_IN_ORDER = 10  # rows; fewer are often sorted by chance


def identifies(facts: Facts) -> str | None:
    """Return in which way a column only names its rows; None if it does not.

    Text is an identifier if no value repeats, or if there are more words than a model can learn. Whole numbers are an
    identifier if no value repeats, and if they fill at least half of the range in steps of 1, such as the numbers of
    rows, or if their range is too long for a model. Dates and fractions never are.
    """
    if is_text(facts.type):
        if not facts.all_distinct_known:
            return f"more than {facts.max_distinct:,} different texts"
        return "texts that never repeat" if facts.never_repeats and facts.rows > 1 else None
    grid = facts.finder.grid()
    if grid is None or not facts.never_repeats or facts.gaps or facts.rows < FEWEST_NUMBERS:
        return None
    is_counted = grid.step == 1 and facts.rows >= FILLED * grid.count
    return "whole numbers that never repeat" if is_counted or grid.count > LARGEST else None


def left_out_note(identifiers: Mapping[str, str]) -> Advice:
    """Return the note on identifiers that are left out, and how to keep them.

    >>> left_out_note({"email": "texts that never repeat"})
    "identifiers are left out: 'email' (texts that never repeat); to model one anyway, keep it with keep=['email']"
    """
    counted = ", ".join(f"{name!r} ({why})" for name, why in identifiers.items())
    message = f"identifiers are left out: {counted}; to model one anyway, keep it"
    return Advice(message, keep=[next(iter(identifiers))])


def unrepeated_numbers(columns: Iterable[Column], facts: Mapping[str, Facts]) -> list[str]:
    """Return a warning for the columns of whole numbers that never repeat, at most one line for all of them."""
    found = [
        column.name
        for column in columns
        if column.counts_mass and facts[column.name].rows >= FEWEST_NUMBERS and facts[column.name].never_repeats
        if not is_text(facts[column.name].type)
    ]
    message = f"{some(found, 20)}: whole numbers that never repeat; if they are identifiers, leave them out"
    return [Advice(message, drop=found)] if found else []


def near_identifiers(schema: Schema, facts: Mapping[str, Facts]) -> list[str]:
    """Return a warning for each column whose words hardly repeat, with its share of distinct values."""
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
    """Return a warning for each real column that would have steps if its largest numbers were smaller."""
    return [
        f"{column.name!r} holds whole numbers as large as {max(seen.smallest, seen.largest, key=abs):.6g}, and beyond "
        "2^53 a double cannot hold every whole number; it is modelled as real numbers, so samples lie also between and "
        "below its values; if the largest are errors or mark missing values, remove them; if they are identifiers, "
        "leave the column out"
        for column in (*schema.model, *schema.context)
        if not column.counts_mass and (seen := facts[column.name]).too_large_for_steps
    ]


def several_turns(schema: Schema, facts: Mapping[str, Facts]) -> list[str]:
    """Return a warning for each circular column whose values span more than one turn.

    >>> import pyarrow as pa
    >>> from cubicflow.tables import TableOptions, infer
    >>> from cubicflow.tables.read.table import in_memory
    >>> hours = in_memory(pa.table({"hour": [i % 24 for i in range(99)]}))
    >>> infer(hours, TableOptions(kinds={"hour": "circular:5"})).warnings[0].split(";")[0]
    "'hour' runs from 0 to 23, over 4.6 turns of 5"
    """
    found = []
    for column in (*schema.model, *schema.context):
        if column.turn is not None:
            (low, high), seen = column.unlimited(np.array(column.turn)), facts[column.name]
            turn, span = high - low, seen.largest - seen.smallest
            if span > turn:
                found.append(
                    f"{column.name!r} runs from {seen.smallest:g} to {seen.largest:g}, over {span / turn:.1f} turns of "
                    f"{turn:g}; values a whole turn apart are equal to the model; if a turn is longer, correct it"
                )
    return found


def too_few_rows(schema: Schema, rows: int) -> list[str]:
    """Return a warning if there are few training rows for the number of columns."""
    columns = len(schema.model)
    if columns == 1 or rows >= ROWS_PER_COLUMN * columns:
        return []
    counted = f"there are {rows:,} training rows for {columns:,} columns"
    little = f"fewer than {ROWS_PER_COLUMN} rows per column show little of how the columns depend on one another"
    return [f"{counted}: {little}; leave columns out, or add rows"]


# --- the order of rows ---


class OrderOfRows:
    """An accumulator of a column's values that tells whether they are sorted.

    A model of rows ignores their order. If the rows are sorted by a date, random test rows lie between training rows,
    and slow changes make them easier to predict.
    """

    def __init__(self) -> None:
        self.rises = self.falls = False
        self.rows = 0
        self._last: Floats = np.empty(0)

    def update(self, values: pa.Array) -> None:
        """Add values of one type, some of which may be missing."""
        found = amounts(values.drop_null())
        steps = np.diff(np.concatenate([self._last, found]))
        self.rises |= bool((steps > 0).any())
        self.falls |= bool((steps < 0).any())
        self.rows += len(found)
        self._last = found[-1:] if len(found) else self._last

    @property
    def in_order(self) -> bool:
        """Whether the values are sorted, up or down, and not all equal."""
        return self.rows >= FEWEST_IN_ORDER and self.rises != self.falls


def remark_on_order(orders: dict[str, OrderOfRows]) -> list[str]:
    """Return a note if the rows are sorted by a column of dates."""
    found = [name for name, order in orders.items() if order.in_order]
    if not found:
        return []
    exchangeable = "the model ignores their order, so test rows lie between training rows in time"
    honest = f"for a test on the latest rows, split by {BY_TIME}{found[0]}"
    return [f"rows are sorted by {found[0]!r}; {exchangeable}; {honest}"]
