"""Columns with a finite list of values, and columns with nothing to learn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.tables.arrow_types import (
    LONG_WHOLE,
    NOT_DECIMAL,
    Floats,
    exact_cast,
    fits,
    floats,
    is_text,
    shown,
    words_as,
)
from cubicflow.tables.kinds.column import Column, Evidence, Level, first_shown
from cubicflow.tables.table_error import TableError, listed, some

MOST_JSON_LEVELS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Listed(Column):
    """A column with a finite list of values, ``levels``: y is the index of a value. The likelihood counts its mass."""

    is_list: ClassVar[bool] = True

    kind: str = "categorical"

    def settle(self, seen: Evidence) -> tuple[Self, list[str]]:
        is_inferred_text = is_text(self.arrow_type) and not seen.kind_was_requested
        hint = near_numbers(seen.facts.sorted_distinct()) if is_inferred_text else None
        return self, [f"{self.name!r} is read as words: {hint}"] if hint else []

    def numbers(self, array: pa.Array, *, strict: bool = True) -> Floats:
        known = self._value_set
        codes = pc.index_in(_searchable(exact_cast(array, known.type)), _searchable(known), skip_nulls=True)
        if strict and codes.null_count:
            unseen = pc.unique(array.filter(pc.is_null(codes)))
            raise TableError(
                f"column {self.name!r} holds {listed(shown(unseen))}, which the fitted table did not; it held "
                f"{listed(shown(known), 10)}"
            )
        found: Floats = pc.fill_null(codes.cast(pa.float64()), np.inf).to_numpy(zero_copy_only=False)
        return found

    def decode(self, y: Floats) -> pa.Array:
        codes = np.clip(np.floor(y), 0, len(self.levels) - 1).astype(np.int64)
        return words_as(self._value_set.take(pa.array(codes)), self.arrow_type)

    @cached_property
    def _value_set(self) -> pa.Array:
        return self.values(self.levels)

    @property
    def expected_values(self) -> str:
        return "true or false" if pa.types.is_boolean(self.arrow_type) else "known values"

    @property
    def likelihood_term(self) -> str:
        return f"mass of each of {len(self.levels)} values"

    def check(self) -> None:
        super().check()
        if len(self.levels) > MOST_JSON_LEVELS or len(set(self.levels)) < len(self.levels):
            raise ValueError(f"levels should be 1 to {MOST_JSON_LEVELS} distinct values, got {len(self.levels)}")
        self.values(self.levels)  # raises if a level is not of the column's type


def _searchable(values: pa.Array) -> pa.Array:
    """Return values that ``pc.index_in`` can search. Floats become float64, because ``index_in`` lacks float16, and
    -0.0 becomes 0.0."""
    return pa.array(floats(values) + 0.0) if pa.types.is_floating(values.type) else values


def near_numbers(words: Sequence[str]) -> str | None:
    """Return a hint if the words look like badly written numbers, such as 1,5 or a ? among numbers; else None."""
    longest = max(words, key=len, default="")
    if re.match(LONG_WHOLE, longest) and all(fits(pa.array([word]), pa.float64()) for word in words):
        digits = len(longest.lstrip("+-"))
        return f"its whole numbers have {digits} digits, but only 16 can be kept (write amounts as 1.5e{digits - 1})"
    # skip codes such as 007: they are words on purpose
    odd = [word for word in words if not re.match(NOT_DECIMAL, word) and not fits(pa.array([word]), pa.float64())]
    if 0 < len(odd) < len(words) / 2:
        is_not = "is not a number" if len(odd) == 1 else "are not numbers"
        return f"{some(odd, 3)} {is_not}; write numbers as 1234.5, and leave missing values empty"
    digits = sum(char.isdigit() for word in odd[:50] for char in word)
    letters = sum(char.isalpha() for word in odd[:50] for char in word)
    if digits > 4 * letters:
        return "if these are numbers or dates, write them as 1234.5 and 2024-12-31"
    return None


# --- columns with nothing to learn ---


@dataclass(frozen=True, kw_only=True)
class Constant(Column):
    """A column with one value, which samples repeat. y is 0."""

    counts_mass: ClassVar[bool] = False

    value: Level
    kind: str = "constant"

    def settle(self, seen: Evidence) -> tuple[Self, list[str]]:  # noqa: ARG002
        return self, [f"{self.name!r} is always {self._shown}; samples repeat it"]

    def numbers(self, array: pa.Array, *, strict: bool = True) -> Floats:  # noqa: ARG002 - always strict
        expected = self.values([self.value])
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


@dataclass(frozen=True, kw_only=True)
class Dropped(Column):
    """A column whose values are never read."""

    likelihood_term: ClassVar[str] = "left out"

    kind: str = "dropped"

    def read(self, array: pa.Array) -> pa.Array:
        return array

    def numbers(self, array: pa.Array, *, strict: bool = True) -> Floats:  # noqa: ARG002
        return np.zeros(len(array))

    def decode(self, y: Floats) -> pa.Array:
        return pa.nulls(len(y), self.arrow_type)
