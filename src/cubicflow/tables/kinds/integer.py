"""Whole numbers: a mass per step, which need not be 1."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from cubicflow.tables.arrow_types import type_name
from cubicflow.tables.kinds.column import Column, Facts, Role
from cubicflow.tables.kinds.gridded import Gridded, whole_grid
from cubicflow.tables.table_error import TableError


class Integer(Gridded):
    """Whole numbers, of whatever type."""

    kind: ClassVar[str] = "integer"

    @classmethod
    def infer(cls, facts: Facts, told: type[Column] | None, role: Role) -> Column | None:
        name, type = facts.name, type_name(facts.type)
        if pa.types.is_integer(facts.type):
            if told is not None and not issubclass(told, Gridded):
                return None
            return cls(name, type, role, grid=whole_grid(facts))
        if told is not cls:
            return None
        grid = facts.finder.grid()
        if grid is None or grid.decimals:
            raise TableError(f"column {name!r} holds fractions, so it cannot be integer")
        return cls(name, type, role, grid=grid)

    @property
    def words(self) -> str:
        return "whole numbers" if self.grid.step == 1 else super().words
