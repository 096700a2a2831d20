"""Fractions at a fixed resolution, such as 0.23 or 61.5: a mass per step."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from cubicflow.tables.arrow_types import floats_as, type_name
from cubicflow.tables.kinds.column import Column, Facts, Role
from cubicflow.tables.kinds.facts import Codes
from cubicflow.tables.kinds.gridded import Gridded
from cubicflow.tables.table_error import TableError

MOST_STEPS = 100_000  # beyond that many steps from end to end, a column is as good as continuous


class Stepped(Gridded):
    """Numbers that are all multiples of a step."""

    kind: ClassVar[str] = "stepped"

    @classmethod
    def infer(cls, facts: Facts, told: type[Column] | None, role: Role) -> Column | None:
        if told not in (None, cls):
            return None
        grid = facts.finder.grid()
        if grid is None and told is cls:
            raise TableError(
                f"column {facts.name!r} has no step of which all its values are multiples, so it cannot be stepped"
            )
        if grid is None or (grid.count > MOST_STEPS and told is None):
            return None
        return cls(facts.name, type_name(facts.type), role, grid=grid)

    def from_codes(self, codes: Codes) -> pa.Array:
        return floats_as(self.grid.values(codes), self.arrow_type, self.grid.decimals)

    @property
    def decimals(self) -> int | None:
        return self.grid.decimals
