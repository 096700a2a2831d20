"""Categorical columns: words, or numbers that the user declares categorical. The likelihood counts each word's mass.

A flow sees each word as an interval of the real line, so the words need an order. Words with similar rows should be
neighbours. Each word has a vector: the mean rank, over the word's rows, of each ordered column. The first principal
direction of these vectors orders the words. A table without ordered columns orders words by frequency.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import LONG_WHOLE, NOT_DECIMAL, Floats, fits, is_text, type_name
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
        return self._in_best_order(seen.sample, seen.others) if self.role == "model" else self, notes

    def _in_best_order(self, sample: pa.Table, others: Sequence[Column]) -> Self:
        codes = self.encode(sample.column(self.name).combine_chunks()).astype(np.int64)
        rows = np.bincount(codes, minlength=len(self.levels)).astype(np.float64)
        position = -rows  # the most frequent word comes first
        if others:
            means = np.stack([_mean_ranks(other, sample, codes, rows) for other in others], axis=1)
            direction = np.linalg.svd(np.sqrt(rows)[:, None] * means, full_matrices=False)[2][0]
            direction *= np.sign(direction[np.abs(direction).argmax()]) or 1.0
            position = np.where(rows > 0, means @ direction, np.inf)  # words outside the sample come last
        order = sorted(range(len(self.levels)), key=lambda i: (float(position[i]), i))
        return replace(self, levels=tuple(self.levels[i] for i in order))


def _mean_ranks(other: Column, sample: pa.Table, codes: NDArray[np.int64], rows: Floats) -> Floats:
    """Return the mean rank, in (-0.5, 0.5), of another column's values over the rows of each word."""
    y = other.encode(sample.column(other.name).combine_chunks())
    _, inverse, counts = np.unique(y, return_inverse=True, return_counts=True)
    ranks = ((np.cumsum(counts) - counts / 2) / len(y) - 0.5)[inverse]  # ties share their mean rank
    return np.bincount(codes, weights=ranks, minlength=len(rows)) / np.maximum(rows, 1)


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
