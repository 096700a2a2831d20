"""Columns with a finite list of values: the base class, and numbers from a short list without a common step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.tables.arrow_types import Floats, exact_cast, floats, shown, type_name, words_as
from cubicflow.tables.kinds.column import Column, Facts, Level, Parsers, Role
from cubicflow.tables.table_error import TableError, listed

MOST_JSON_LEVELS = 1 << 16
ROWS_PER_LEVEL = 10  # rows; numbers without a step are levels only if each value has this many rows on average


def _parse_levels(levels: Any) -> tuple[Level, ...]:
    if not isinstance(levels, list) or not all(isinstance(level, str | int | float) for level in levels):
        raise ValueError("levels should be a list of values")
    if not 0 < len(levels) <= MOST_JSON_LEVELS or len(set(levels)) < len(levels):
        raise ValueError(f"levels should be 1 to {MOST_JSON_LEVELS} distinct values, got {len(levels)}")
    return tuple(levels)


@dataclass(frozen=True, kw_only=True)
class Levelled(Column):
    """A column with a finite list of values, ``levels``: y is the index of a value. The likelihood counts its mass."""

    is_list: ClassVar[bool] = True
    is_ordered: ClassVar[bool] = False
    json_parsers: ClassVar[Parsers] = {"levels": _parse_levels}

    levels: tuple[Level, ...]

    @classmethod
    def of_numbers(cls, facts: Facts, role: Role) -> Self:
        """Return a column that lists the distinct numbers or dates. Raise TableError if there are too many."""
        if not facts.all_distinct_known or len(facts.distinct) == facts.rows:
            raise TableError(
                f"column {facts.name!r} holds too many different values to be {cls.kind}; choose another kind"
            )
        return cls(facts.name, type_name(facts.type), role, levels=tuple(facts.sorted_distinct()))

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
        """Return the index of each value among the levels, null for a value that is not a level."""
        known = self._value_set
        return pc.index_in(_searchable(exact_cast(values, known.type)), _searchable(known), skip_nulls=True)

    def decode(self, y: Floats) -> pa.Array:
        codes = np.clip(np.floor(y), 0, len(self.levels) - 1).astype(np.int64)
        return words_as(self._value_set.take(pa.array(codes)), self.arrow_type)

    @cached_property
    def _value_set(self) -> pa.Array:
        return self.values(self.levels)

    @property
    def likelihood_term(self) -> str:
        return f"mass of each of {len(self.levels)} values"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(str(level) for level in self.levels)

    def check(self) -> None:
        super().check()
        self.values(self.levels)  # raises if a level is not of the column's type


class Levels(Levelled):
    """Numbers that repeat, from a short list without a common step."""

    kind: ClassVar[str] = "levels"
    is_ordered: ClassVar[bool] = True

    @classmethod
    def infer(cls, facts: Facts, requested_kind: type[Column] | None, role: Role) -> Column | None:
        if requested_kind is None and facts.all_distinct_known and len(facts.distinct) * ROWS_PER_LEVEL <= facts.rows:
            return cls(facts.name, type_name(facts.type), role, levels=tuple(facts.sorted_distinct()))
        return None


def _searchable(values: pa.Array) -> pa.Array:
    """Return values that ``pc.index_in`` can search. Floats become float64, because ``index_in`` lacks float16, and
    -0.0 becomes 0.0."""
    return pa.array(floats(values) + 0.0) if pa.types.is_floating(values.type) else values
