"""Datetime columns: a mass per step, such as a day, an hour or a second."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import Floats, is_date, shown, type_name, whole_numbers
from cubicflow.tables.kinds.column import Column, Facts, Role, TypeTest, cannot_be
from cubicflow.tables.kinds.gridded import Gridded, whole_grid
from cubicflow.tables.table_error import TableError


class Datetime(Gridded):
    """Dates, and times of any resolution with or without a time zone."""

    kind: ClassVar[str] = "datetime"
    is_measured: ClassVar[bool] = False
    on_calendar: ClassVar[bool] = True
    accepts_type: ClassVar[TypeTest] = staticmethod(is_date)

    @classmethod
    def infer(cls, facts: Facts, requested_kind: type[Column] | None, role: Role) -> Column | None:
        if not is_date(facts.type):
            if requested_kind is cls:
                raise TableError(
                    f"column {facts.name!r} holds numbers; write dates as 2024-12-31 or 2024-12-31 23:59:59"
                )
            return None
        if requested_kind not in (None, cls):
            raise cannot_be(facts, requested_kind or cls)
        return cls(facts.name, type_name(facts.type), role, grid=whole_grid(facts))

    @property
    def expected_values(self) -> str:
        start = shown(self.values([self.grid.origin]))[0]
        return f"date-times in steps of {_duration(self.arrow_type, self.grid.step)} counted from {start}"

    @property
    def likelihood_term(self) -> str:
        return f"mass per step of {_duration(self.arrow_type, self.grid.step)}"

    def axis_values(self, array: pa.Array) -> Floats:
        """Return days since 1970, the unit of matplotlib's date axes."""
        return whole_numbers(array.cast(pa.timestamp("ms"), safe=False)) / 86_400_000.0

    @property
    def axis_step(self) -> float | None:
        return float(np.diff(self.axis_values(self.values([0, self.grid.step])))[0]) or None


def _duration(type: pa.DataType, step: int) -> str:
    unit = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    seconds = step * (86400.0 if pa.types.is_date32(type) else 1e-3 if pa.types.is_date64(type) else unit[type.unit])
    for name, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= length and seconds % length == 0:
            count = int(seconds // length)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return f"{seconds:g} seconds"
