"""The kinds of columns. A new kind is a class in a file of its own and a place in ``KINDS``."""

from __future__ import annotations

from typing import Any

from cubicflow.tables.kinds.boolean import Boolean
from cubicflow.tables.kinds.categorical import Categorical
from cubicflow.tables.kinds.column import Column, Facts, Role
from cubicflow.tables.kinds.constant import Constant, Dropped
from cubicflow.tables.kinds.datetime import Datetime
from cubicflow.tables.kinds.integer import Integer
from cubicflow.tables.kinds.levels import Levels
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.kinds.stepped import Stepped
from cubicflow.tables.table_error import TableError

__all__ = ["KINDS", "NAMES", "Column", "Constant", "Dropped", "Real", "column_from_json", "decide"]

# From the most general to the most particular. The last one that takes a column has it.
KINDS: dict[str, type[Column]] = {
    kind.kind: kind for kind in (Real, Levels, Stepped, Integer, Datetime, Categorical, Boolean, Constant, Dropped)
}
NAMES = [name for name, kind in KINDS.items() if kind.can_be_told]


def decide(facts: Facts, told: str | None, role: Role) -> Column:
    """A column without its map. ``told`` is the user's word for its kind."""
    facts.check()
    asked = None if told is None else KINDS[told]
    for kind in reversed(KINDS.values()):
        column = kind.infer(facts, asked, role)
        if column is not None:
            return column
    raise AssertionError("a real column takes all numbers")


def column_from_json(value: Any) -> Column:
    """The column that :meth:`Column.to_json` described. Trusts nothing."""
    if not isinstance(value, dict):
        raise TableError(f"a column should be an object, got {str(value)[:80]}")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise TableError(f"column {value.get('name')!r} has the kind {kind!r}, which is none of {', '.join(KINDS)}")
    return KINDS[kind].from_json(value)
