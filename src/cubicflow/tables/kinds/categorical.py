"""Categorical columns: words, or numbers that the user declares categorical. The likelihood counts each word's mass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Self

import pyarrow as pa

from cubicflow.tables.arrow_types import LONG_WHOLE, NOT_DECIMAL, fits, is_text, type_name
from cubicflow.tables.kinds.column import Column, Evidence, Facts, Role, cannot_be
from cubicflow.tables.kinds.levels import Levelled
from cubicflow.tables.table_error import TableError, some

MOST_CONTEXT_WORDS = 1 << 12  # words; each word of a context column is one feature


class Categorical(Levelled):
    """A column of words."""

    kind: ClassVar[str] = "categorical"

    @classmethod
    def infer(cls, facts: Facts, requested_kind: type[Column] | None, role: Role) -> Column | None:
        if not is_text(facts.type):
            return cls.of_numbers(facts, role) if requested_kind is cls else None
        if requested_kind not in (None, cls):
            raise cannot_be(facts, requested_kind or cls)
        words = facts.sorted_distinct()
        most = MOST_CONTEXT_WORDS if role == "context" else facts.max_distinct
        if len(words) > most or (facts.never_repeats and requested_kind is None):
            why = f"it holds more than {most} words" if len(words) > most else "every value is different"
            raise TableError(
                f"column {facts.name!r} is text and {why} ({some(words, 3)}), so there is nothing to learn from it"
                f"{f'; {hint}' if (hint := _near_numbers(words)) else ''}; leave it out",
                drop=[facts.name],
            )
        return cls(facts.name, type_name(facts.type), role, levels=tuple(words))

    def settle(self, seen: Evidence) -> tuple[Self, list[str]]:
        is_inferred_text = is_text(self.arrow_type) and not seen.kind_was_requested
        hint = _near_numbers(seen.facts.sorted_distinct()) if is_inferred_text else None
        notes = [f"{self.name!r} is read as words: {hint}"] if hint else []
        return self, notes


def _near_numbers(words: Sequence[str]) -> str | None:
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
