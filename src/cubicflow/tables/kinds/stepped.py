"""Stepped columns: fractions at a fixed resolution, such as 0.23 or 61.5, with a mass per step."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from cubicflow.tables.arrow_types import floats_as, type_name
from cubicflow.tables.kinds.column import Column, Facts, Role
from cubicflow.tables.kinds.facts import Codes
from cubicflow.tables.kinds.gridded import Gridded
from cubicflow.tables.table_error import TableError

MOST_STEPS = 100_000  # steps from the smallest to the largest value; a finer column counts as continuous


class Stepped(Gridded):
    """Numbers that are multiples of a common step, counted from the smallest number."""

    kind: ClassVar[str] = "stepped"

    @classmethod
    def infer(cls, facts: Facts, requested_kind: type[Column] | None, role: Role) -> Column | None:
        if requested_kind not in (None, cls):
            return None
        grid = facts.finder.grid()
        if grid is None and requested_kind is cls:
            raise TableError(
                f"the values of column {facts.name!r} have no common step, so it cannot be stepped; choose the kind "
                "real"
            )
        if grid is None or (grid.count > MOST_STEPS and requested_kind is None):
            return None
        return cls(facts.name, type_name(facts.type), role, grid=grid)

    def from_codes(self, codes: Codes) -> pa.Array:
        return floats_as(self.grid.values(codes), self.arrow_type, self.grid.decimals)

    @property
    def decimals(self) -> int | None:
        return self.grid.decimals
