"""Columns that are left out."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.kinds.column import Column, Facts, Role


class Dropped(Column):
    """A column whose values are never looked at."""

    kind: ClassVar[str] = "dropped"
    roles: ClassVar[tuple[Role, ...]] = ("dropped",)
    mapped: ClassVar[tuple[Role, ...]] = ()
    counted = "left out"

    @classmethod
    def infer(cls, facts: Facts, told: type[Column] | None, role: Role) -> None:  # noqa: ARG003
        return None

    def encode(self, array: pa.Array) -> Floats:
        return np.zeros(len(array))

    def decode(self, y: Floats) -> pa.Array:
        return pa.nulls(len(y), self.arrow_type)
