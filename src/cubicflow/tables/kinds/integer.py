"""Integer columns: whole numbers with a mass per step. The step may be larger than 1."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from cubicflow.tables.arrow_types import type_name
from cubicflow.tables.kinds.column import Column, Facts, Role
from cubicflow.tables.kinds.gridded import Gridded, whole_grid
from cubicflow.tables.table_error import TableError


class Integer(Gridded):
    """Whole numbers of any numeric type."""

    kind: ClassVar[str] = "integer"

    @classmethod
    def infer(cls, facts: Facts, requested_kind: type[Column] | None, role: Role) -> Column | None:
        name, type = facts.name, type_name(facts.type)
        if pa.types.is_integer(facts.type):
            if requested_kind is not None and not issubclass(requested_kind, Gridded):
                return None
            return cls(name, type, role, grid=whole_grid(facts))
        if requested_kind is not cls:
            return None
        grid = facts.finder.grid()
        if grid is None or grid.decimals:
            raise TableError(f"column {name!r} holds fractions, so it cannot be integer; choose stepped or real")
        return cls(name, type, role, grid=grid)

    @property
    def expected_values(self) -> str:
        return "whole numbers" if self.grid.step == 1 else super().expected_values
