"""Notes on standard error about a table that differs from the fitted table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cubicflow.advice import Advice
from cubicflow.cli.terminal import say

if TYPE_CHECKING:
    from cubicflow.tables import Schema, Table


def say_ignored(schema: Schema, table: Table) -> None:
    """Print a note about columns that are not in the fitted table. Raises TableError if a fitted column is missing."""
    schema.check(table, weights=False)
    if new := schema.new_columns(table):
        from cubicflow.tables import some

        say(f"note: the fitted table had no column {some(new)}; it is ignored", err=True)


def say_remarks(table: Table) -> None:
    """Print notes on how a table was read, such as the number of its empty lines. The rows must have been read."""
    for remark in table.remarks:
        say(Advice.after("note: ", remark), err=True)


def say_unseen(counts: Mapping[str, int]) -> None:
    """Print a note about values that no training row had, with their number in each column."""
    if counts:
        found = ", ".join(f"{count:,} in {name!r}" for name, count in counts.items())
        say(
            f"note: {sum(counts.values()):,} values are not in the fitted table ({found}); they get the probability "
            "that is reserved for unseen values",
            err=True,
        )
