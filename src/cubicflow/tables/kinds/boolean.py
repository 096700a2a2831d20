"""Boolean columns: true and false, or any two numbers. The likelihood counts the mass of each value."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from cubicflow.tables.arrow_types import is_text, type_name
from cubicflow.tables.kinds.column import Column, Facts, Role, cannot_be
from cubicflow.tables.kinds.levels import Levelled
from cubicflow.tables.table_error import TableError


class Boolean(Levelled):
    """A column of truth values."""

    kind: ClassVar[str] = "boolean"

    @classmethod
    def infer(cls, facts: Facts, requested_kind: type[Column] | None, role: Role) -> Column | None:
        if pa.types.is_boolean(facts.type):
            if requested_kind is not None and not issubclass(requested_kind, Levelled):
                raise cannot_be(facts, requested_kind)
            return cls(facts.name, type_name(facts.type), role, levels=(False, True))
        if requested_kind is not cls:
            return None
        if is_text(facts.type):
            raise cannot_be(facts, requested_kind)
        column = cls.of_numbers(facts, role)
        if len(column.levels) != 2:
            raise TableError(
                f"column {facts.name!r} holds {len(column.levels)} different values, expected 2 for boolean; choose "
                "another kind"
            )
        return column

    expected_values = "true or false"
