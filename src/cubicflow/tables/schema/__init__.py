"""The schema of a table: its columns, stored as JSON in a run's config, and checked against new tables."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from cubicflow.tables.arrow_types import family
from cubicflow.tables.kinds import column_from_json
from cubicflow.tables.kinds.column import Column, Role
from cubicflow.tables.read.table import ROW_INDEX, Table
from cubicflow.tables.table_error import TableError, some


@dataclass(frozen=True)
class Schema:
    """The columns of a fitted table, in the order of the table.

    >>> import pyarrow as pa
    >>> from cubicflow.tables.read.table import in_memory
    >>> from cubicflow.tables import infer
    >>> schema = infer(in_memory(pa.table({"a": [i / 4 for i in range(40)], "b": [1] * 40}))).schema
    >>> [(column.name, column.describe()) for column in schema.columns]
    [('a', 'mass per step of 0.25'), ('b', 'always 1: probability 1')]
    """

    columns: tuple[Column, ...]

    def of_role(self, role: Role) -> list[Column]:
        """Return the columns with this role."""
        return [column for column in self.columns if column.role == role]

    @property
    def model(self) -> list[Column]:
        return self.of_role("model")

    @property
    def context(self) -> list[Column]:
        return self.of_role("context")

    @property
    def weights(self) -> Column | None:
        return next(iter(self.of_role("weights")), None)

    def lines(self) -> list[str]:
        """Return a line for each column: its name, and what the likelihood counts."""
        width = max(len(column.name) for column in self.columns)
        return [f"  {column.name:<{width}}  {column.describe()}" for column in self.columns]

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise TableError(f"there is no column {name!r}; the columns are {some([c.name for c in self.columns], 20)}")

    def check(self, table: Table, *, weights: bool = False) -> list[str]:
        """Return the columns to read from a table. Raises TableError with all differences if the table does not match.

        The table must have all columns of the schema except dropped columns. The column of weights is needed only if
        ``weights`` is true. Other columns are ignored.
        """
        known = {column.name: column for column in self.columns}
        unneeded = ("dropped",) if weights else ("dropped", "weights")
        needed = [column.name for column in self.columns if column.role not in unneeded]
        problems = [f"column {name!r} is missing" for name in needed if name not in table.types]
        if problems:  # a new column may be the missing one under another name
            problems += [f"column {name!r} is new" for name in self.new_columns(table)]
        for name in needed:
            if name in table.types and not table.is_text:
                expected, found = known[name].arrow_type, table.types[name]
                if family(expected) != family(found):
                    problems.append(f"column {name!r} should be {known[name].kind} ({expected}), is {found}")
        if problems:
            more = f"; and {len(problems) - 8} more" if len(problems) > 8 else ""
            differences = "; ".join(problems[:8]) + more
            raise TableError(
                f"{table.name}: this table differs from the fitted table: {differences}; give a table with the columns "
                "of the fitted one"
            )
        return needed

    def new_columns(self, table: Table) -> list[str]:
        """Return the columns of a table that the fitted table did not have."""
        known = {column.name for column in self.columns}
        return [name for name in table.names if name not in known and not re.fullmatch(ROW_INDEX, name)]

    def to_json(self) -> list[dict[str, Any]]:
        return [column.to_json() for column in self.columns]

    @classmethod
    def from_json(cls, value: Any) -> Schema:
        """Return the schema that :meth:`to_json` wrote. Raises TableError for anything invalid."""
        if not isinstance(value, list) or not value:
            raise TableError("a schema should be a list of columns")
        schema = cls(tuple(column_from_json(item) for item in value))
        twice = [name for name, count in Counter(column.name for column in schema.columns).items() if count > 1]
        if twice:
            raise TableError(f"the schema has more than one column {some(twice)}")
        if not schema.model or len(schema.of_role("weights")) > 1:
            raise TableError("a schema needs at least one column to model, and at most one column of weights")
        return schema
