"""Columns with nothing to learn: a constant column has one value with probability 1; a dropped column is ignored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.tables.arrow_types import Floats, exact_cast, shown, type_name, words_as
from cubicflow.tables.kinds.column import Column, Evidence, Facts, Level, Parsers, Role, first_shown
from cubicflow.tables.kinds.levels import Levels
from cubicflow.tables.table_error import TableError, some


def _parse_value(value: Any) -> Level:
    if not isinstance(value, str | int | float):
        raise TypeError(f"the value should be text or a number, got {str(value)[:80]}")
    return value


@dataclass(frozen=True, kw_only=True)
class Constant(Column):
    """A column with one value, which samples repeat. y is 0."""

    kind: ClassVar[str] = "constant"
    roles: ClassVar[tuple[Role, ...]] = ("constant",)
    counts_mass: ClassVar[bool] = False
    json_parsers: ClassVar[Parsers] = {"value": _parse_value}

    value: Level

    @classmethod
    def infer(cls, facts: Facts, requested_kind: type[Column] | None, role: Role) -> Column | None:
        if len(facts.distinct) == 1 and facts.gaps:  # the model still learns the probability of a missing value
            return Levels(facts.name, type_name(facts.type), role, levels=tuple(facts.sorted_distinct()))
        if len(facts.distinct) == 1:
            return cls(facts.name, type_name(facts.type), "constant", value=facts.sorted_distinct()[0])
        if requested_kind is cls:
            raise TableError(
                f"column {facts.name!r} is not constant: it holds {some(facts.sorted_distinct(), 3)}; choose another "
                "kind"
            )
        return None

    def settle(self, seen: Evidence) -> tuple[Self, list[str]]:  # noqa: ARG002
        return self, [f"{self.name!r} is always {self._shown}; samples repeat it"]

    def encode(self, array: pa.Array) -> Floats:
        expected, array = self.values([self.value]), self.read(array)
        same = pc.fill_null(pc.equal(exact_cast(array, expected.type), expected[0]), False)
        others = ~same.to_numpy(zero_copy_only=False)
        if others.any():
            raise TableError(
                f"column {self.name!r} was always {self._shown} in the fitted table; here it also holds "
                f"{first_shown(array, others)}; leave these rows out"
            )
        return np.zeros(len(array))

    def decode(self, y: Floats) -> pa.Array:
        values = self.values([self.value]).take(pa.array(np.zeros(len(y), dtype=np.int64)))
        return words_as(values, self.arrow_type)

    @property
    def likelihood_term(self) -> str:
        return f"always {self._shown}: probability 1"

    @property
    def _shown(self) -> str:
        return shown(self.values([self.value]))[0]

    def check(self) -> None:
        super().check()
        self.values([self.value])


class Dropped(Column):
    """A column whose values are never read."""

    kind: ClassVar[str] = "dropped"
    roles: ClassVar[tuple[Role, ...]] = ("dropped",)
    likelihood_term = "left out"

    @classmethod
    def infer(cls, facts: Facts, requested_kind: type[Column] | None, role: Role) -> None:  # noqa: ARG003
        return None

    def encode(self, array: pa.Array) -> Floats:
        return np.zeros(len(array))

    def decode(self, y: Floats) -> pa.Array:
        return pa.nulls(len(y), self.arrow_type)
