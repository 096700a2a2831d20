"""What is said, on standard error, about a table that was not quite like the fitted one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cubicflow.cli.terminal import say

if TYPE_CHECKING:
    from cubicflow.tables import Schema, Table


def say_ignored(schema: Schema, table: Table) -> None:
    """Columns that the fitted table did not have. A table that lacks one of its columns is refused first."""
    schema.check(table, weights=False)
    if new := schema.new_columns(table):
        from cubicflow.tables.table_error import some

        say(f"note: the fitted table had no column {some(new)}; it is ignored", err=True)


def say_unseen(counts: Mapping[str, int]) -> None:
    """Cells that held what no training row had."""
    if counts:
        found = ", ".join(f"{count:,} in {name!r}" for name, count in counts.items())
        say(
            f"note: {sum(counts.values()):,} values are not like any in the fitted table ({found}); they have the "
            "probability that is left for the unseen",
            err=True,
        )
