"""The kinds of columns. A new kind is a class in a file of its own and a line in ``REGISTRY``.

The names are here without the classes, whose imports take seconds, for the help of the command line.
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

# A kind, its file and its class; from the most general to the most particular.
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
# Those that the user may ask for.
NAMES = [name for name in REGISTRY if name not in ("circular steps", "levels", "dropped")]


@cache
def kinds() -> dict[str, type[Column]]:
    """The class of every kind."""
    return {name: resolve_name(f"{__name__}.{place}") for name, place in REGISTRY.items()}


def decide(facts: Facts, told: str | None, role: Role) -> Column:
    """A column without its map: of the last kind that takes it. ``told`` is the user's word for its kind."""
    facts.check()
    asked = None if told is None else kinds()[told]
    taken = (kind.infer(facts, asked, role) for kind in reversed(kinds().values()))
    return next(column for column in taken if column is not None)  # a real column takes all numbers


def column_from_json(value: Any) -> Column:
    """The column that :meth:`Column.to_json` described. Trusts nothing."""
    if not isinstance(value, dict):
        raise TableError(f"a column should be an object, got {str(value)[:80]}")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in kinds():
        name, found = str(value.get("name"))[:80], reprlib.repr(kind)  # a stranger's file may hold megabytes there
        raise TableError(f"column {name!r} has the kind {found}, which is none of {', '.join(REGISTRY)}")
    return kinds()[kind].from_json(value)
