"""The kinds of columns. A new kind is a record in ``records.py`` and a name in ``KINDS``.

``KINDS`` holds names: the help of the command line lists the kinds, and importing the records takes seconds.
"""

from __future__ import annotations

import reprlib
from functools import cache
from typing import TYPE_CHECKING, Any

from cubicflow.tables.table_error import TableError

if TYPE_CHECKING:
    from cubicflow.tables.kinds.column import Column, Role
    from cubicflow.tables.kinds.facts import Facts
    from cubicflow.tables.kinds.records import ColumnKind

# from the most general kind to the most specific one
KINDS = (
    *("real", "circular", "circular steps", "levels", "stepped", "integer", "datetime"),
    *("categorical", "boolean", "constant", "dropped"),
)
# the kinds that a user may request
KIND_NAMES = [name for name in KINDS if name not in ("circular steps", "levels", "dropped")]


@cache
def kinds() -> dict[str, ColumnKind]:
    """Return every kind by its name."""
    from cubicflow.tables.kinds.records import RECORDS

    return {name: RECORDS[name] for name in KINDS}


def decide(facts: Facts, requested_kind: str | None, role: Role) -> Column:
    """Return the column, without its map, of the most specific kind that accepts the values.

    ``requested_kind`` is the name of the kind that the user requested, or None.
    """
    facts.check()
    columns = (kind.infer(facts, requested_kind, role) for kind in reversed(kinds().values()))
    return next(column for column in columns if column is not None)  # Real accepts all numbers


def column_from_json(value: Any) -> Column:
    """Return the column that :meth:`Column.to_json` wrote. Every field is checked.

    Raises:
        TableError: the value is not a valid column.
    """
    if not isinstance(value, dict):
        raise TableError(f"a column should be an object, got {str(value)[:80]}")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in kinds():
        # shortened, because an untrusted file may hold megabytes here
        name, found = str(value.get("name"))[:80], reprlib.repr(kind)
        raise TableError(f"column {name!r} has the unknown kind {found}; the kinds are {', '.join(KINDS)}")
    return kinds()[kind].codec.from_json(value)
