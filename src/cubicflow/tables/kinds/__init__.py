"""The kinds of columns. A new kind is a class in its own file and a line in ``REGISTRY``.

``REGISTRY`` holds names instead of classes: the help of the command line lists the kinds, and importing the classes
takes seconds.
"""

from __future__ import annotations

import reprlib
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from cubicflow.tables.table_error import TableError

if TYPE_CHECKING:
    from cubicflow.tables.kinds.column import Column, Role
    from cubicflow.tables.kinds.facts import Facts

# kind: file.Class, from the most general kind to the most specific one
REGISTRY = {
    "real": "real.Real",
    "circular": "circular.Circular",
    "circular steps": "circular.CircularSteps",
    "levels": "levels.Levels",
    "stepped": "stepped.Stepped",
    "integer": "integer.Integer",
    "datetime": "datetime.Datetime",
    "categorical": "categorical.Categorical",
    "boolean": "boolean.Boolean",
    "constant": "constant.Constant",
    "dropped": "constant.Dropped",
}
# the kinds that a user may request
KIND_NAMES = [name for name in REGISTRY if name not in ("circular steps", "levels", "dropped")]


@cache
def kinds() -> dict[str, type[Column]]:
    """Return the class of every kind by its name."""
    return {name: resolve_name(f"{__name__}.{path}") for name, path in REGISTRY.items()}


def decide(facts: Facts, requested_kind: str | None, role: Role) -> Column:
    """Return the column, without its map, of the most specific kind that accepts the values.

    ``requested_kind`` is the name of the kind that the user requested, or None.
    """
    facts.check()
    requested = None if requested_kind is None else kinds()[requested_kind]
    columns = (kind.infer(facts, requested, role) for kind in reversed(kinds().values()))
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
        raise TableError(f"column {name!r} has the unknown kind {found}; the kinds are {', '.join(REGISTRY)}")
    return kinds()[kind].from_json(value)
