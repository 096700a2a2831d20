"""Samples that break a rule of the training rows. A rule says that one column determines another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.model.rules import codes_of, contradictions, find_dependencies


@dataclass(frozen=True)
class BrokenRule:
    """A rule, ``determinant`` determines ``dependent``, and the shares of sampled and held-out rows that break it."""

    determinant: str
    dependent: str
    sampled: float
    held_out: float | None


@dataclass(frozen=True)
class Contradictions:
    """Rows that break at least one rule.

    Attributes:
        sampled, held_out: the shares of sampled and held-out rows that break a rule. ``held_out`` is None if the rules
            come from the held-out rows themselves.
        found_in: the rows that the rules come from, ``"training rows"`` or ``"real rows"``.
        rules: every pair of columns of which the first determines the second.
    """

    sampled: float
    held_out: float | None
    found_in: str
    rules: tuple[BrokenRule, ...]


def count_contradictions(real: Floats, sampled: Floats, train: Floats | None, names: Sequence[str]) -> Contradictions:
    """Return the rules of the training rows (N, D), and the shares of rows that break them.

    Without training rows, the rules come from the real rows.

    >>> rng = np.random.default_rng(0)
    >>> city = rng.integers(0, 6, 400).astype(float)
    >>> real, sampled = np.stack([city, city // 2], axis=1), np.stack([city, np.zeros(400)], axis=1)
    >>> found = count_contradictions(real, sampled, None, ["city", "country"])
    >>> [(rule.determinant, rule.dependent) for rule in found.rules], bool(found.sampled == (city > 1).mean())
    ([('city', 'country')], True)
    """
    tables = codes_of(real, sampled) if train is None else codes_of(real, sampled, train)
    known = tables[0] if train is None else tables[2]
    any_broken = [np.zeros(len(table), dtype=np.bool_) for table in tables[:2]]
    rules = []
    for dependency in find_dependencies(known):
        held_out, samples = (contradictions(table, known, dependency) for table in tables[:2])
        for breaks_any, breaks_this in zip(any_broken, (held_out, samples), strict=True):
            breaks_any |= breaks_this
        share = None if train is None else float(held_out.mean())
        determinant, dependent = (names[column] for column in dependency)
        rules.append(BrokenRule(determinant, dependent, float(samples.mean()), share))
    held_out_share = None if train is None else float(any_broken[0].mean())
    found_in = "real rows" if train is None else "training rows"
    return Contradictions(float(any_broken[1].mean()), held_out_share, found_in, tuple(rules))
