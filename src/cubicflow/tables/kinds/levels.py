"""Lists of values, and numbers from a short list without a common step: a mass of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.tables.arrow_types import Floats, exact_cast, floats, shown, type_name, words_as
from cubicflow.tables.kinds.column import Bounds, Column, Facts, Level, Parsers, Role
from cubicflow.tables.maps import CodeCounts, Histogram, histogram_of_levels
from cubicflow.tables.table_error import TableError, listed

MOST_JSON_LEVELS = 1 << 16
ROWS_PER_LEVEL = 10  # numbers without a step are levels only if they repeat this often


def _distinct(levels: Any) -> tuple[Level, ...]:
    if not isinstance(levels, list) or not all(isinstance(level, str | int | float) for level in levels):
        raise ValueError("its levels should be a list of values")
    if not 0 < len(levels) <= MOST_JSON_LEVELS or len(set(levels)) < len(levels):
        raise ValueError(f"its {len(levels)} levels are not distinct, or more than any table's, or none")
    return tuple(levels)


@dataclass(frozen=True, kw_only=True)
class Levelled(Column):
    """A column whose values are a list, ``levels``: y is a value's place in it."""

    is_list: ClassVar[bool] = True
    is_ordered: ClassVar[bool] = False
    mapped: ClassVar[tuple[Role, ...]] = ("model",)
    own: ClassVar[Parsers] = {"levels": _distinct}

    levels: tuple[Level, ...]

    @classmethod
    def of_numbers(cls, facts: Facts, role: Role) -> Self:
        """The column of a few numbers or dates that are to be a list."""
        if not facts.few or len(facts.distinct) == facts.rows:
            raise TableError(f"column {facts.name!r} holds too many different values to be {cls.kind}")
        return cls(facts.name, type_name(facts.type), role, levels=tuple(facts.listed()))

    def learn(self, counts: CodeCounts, rows: int, bounds: Bounds | None) -> Self:  # noqa: ARG002
        if self.role == "context":  # one feature a level
            return self
        each = np.zeros(len(self.levels))
        each[counts.codes] = counts.counts
        return replace(self, map=histogram_of_levels(each))

    def encode(self, array: pa.Array) -> Floats:
        array = self.read(array)
        codes = self._codes(array)
        if codes.null_count:
            unseen = pc.unique(array.filter(pc.is_null(codes)))
            raise TableError(
                f"column {self.name!r} holds {listed(shown(unseen))}, which the fitted table did not; it held "
                f"{listed(shown(self._value_set), 10)}"
            )
        result: Floats = codes.to_numpy().astype(np.float64)
        return result

    def encode_any(self, array: pa.Array) -> Floats:
        try:
            array = self.read(array)
        except TableError:  # text among numbers
            return super().encode_any(array)
        codes = self._codes(array)
        found: Floats = pc.fill_null(codes.cast(pa.float64()), np.inf).to_numpy(zero_copy_only=False)
        return found

    def _codes(self, values: pa.Array) -> pa.Array:
        """The places of values among the levels, null for others."""
        known = self._value_set
        return pc.index_in(_looked_up(exact_cast(values, known.type)), _looked_up(known), skip_nulls=True)

    def decode(self, y: Floats) -> pa.Array:
        codes = np.clip(np.floor(y), 0, len(self.levels) - 1).astype(np.int64)
        return words_as(self._value_set.take(pa.array(codes)), self.arrow_type)

    @cached_property
    def _value_set(self) -> pa.Array:
        return self.values(self.levels)

    @property
    def context_width(self) -> int:
        return len(self.levels)

    def context(self, array: pa.Array) -> Floats:
        """One feature a level."""
        return np.eye(len(self.levels))[self.encode(array).astype(np.int64)]

    @property
    def counted(self) -> str:
        return f"mass of each of {len(self.levels)} values"

    def drawn(self, array: pa.Array) -> Floats:
        return self.encode(array)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(str(level) for level in self.levels)

    def check(self) -> None:
        super().check()
        edges = self.map.edges if isinstance(self.map, Histogram) else ()
        if self.role in self.mapped and (len(edges) != len(self.levels) + 1 or edges[0] != 0):
            raise ValueError(f"its map does not fit its {len(self.levels)} levels")
        self.values(self.levels)


class Levels(Levelled):
    """Numbers that repeat, from a short list without a common step."""

    kind: ClassVar[str] = "levels"
    is_ordered: ClassVar[bool] = True

    @classmethod
    def infer(cls, facts: Facts, told: type[Column] | None, role: Role) -> Column | None:
        if told is None and facts.few and len(facts.distinct) * ROWS_PER_LEVEL <= facts.rows:
            return cls(facts.name, type_name(facts.type), role, levels=tuple(facts.listed()))
        return None


def _looked_up(values: pa.Array) -> pa.Array:
    """Numbers that arrow can look up: it knows no float16, and takes -0.0 and 0.0 for different."""
    return pa.array(floats(values) + 0.0) if pa.types.is_floating(values.type) else values
