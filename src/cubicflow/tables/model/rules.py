"""Columns that determine one another: all rows with the same value of one column have the same value of the other.

In a table of cities, the city determines the country. In a table of orders, the date determines the weekday. Such a
rule must hold in all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.table_error import TableError, some
from cubicflow.tables.unit_scale import PRIOR

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]

FEWEST_REPEATS = 100  # rows whose value of the determinant occurred before
MOST_BY_CHANCE = 1e-6  # expected number of accidental dependencies in a table


class Dependency(NamedTuple):
    """The index of a column, ``determinant``, whose value fixes the value of another, ``dependent``."""

    determinant: int
    dependent: int


def codes_of(*tables: Floats) -> list[Codes]:
    """Return integer codes for the values of tables (N, D) with the same columns.

    Equal values of a column have equal codes in all tables. A missing value (NaN) has the code -1.

    >>> [codes.ravel().tolist() for codes in codes_of(np.array([[2.5], [np.nan]]), np.array([[2.5], [1.0]]))]
    [[1, -1], [1, 0]]
    """
    coded = [np.empty(table.shape, dtype=np.int64, order="F") for table in tables]  # contiguous columns
    for j in range(tables[0].shape[1]):
        known = np.unique(np.concatenate([table[:, j][~np.isnan(table[:, j])] for table in tables]))
        for codes, table in zip(coded, tables, strict=True):
            codes[:, j] = np.where(np.isnan(table[:, j]), -1, np.searchsorted(known, table[:, j]))
    return coded


def find_dependencies(codes: Codes) -> list[Dependency]:
    """Return all pairs of columns a, b of ``codes`` (N, D) such that a determines b in every row, and not by accident.

    Rows in which a is missing are left out: a says nothing about b there.

    A row repeats if an earlier row has the same value of a. Each repeat is a chance for b to differ, so the R repeats
    are the evidence. A pair counts if

    1. no row contradicts the pair, and b is not constant (every column determines a constant);
    2. at least half of the rows are repeats. If most values of a occur once, a is close to a row number, which
       determines every column and is no evidence;
    3. R is at least 100. If b differed in one repeat out of 33 or more often, no contradiction in 100 repeats would
       have a probability below 5 % (0.97^100);
    4. p^R D (D - 1) is below 1e-6, where p is the share of the most common value of b. If a and b were independent, n
       rows with one value of a would agree in b with probability sum_b p_b^n, which is at most p^(n - 1). The product
       over all values of a is at most p^R, so the expected number of accidental pairs in the table is below 1e-6.

    >>> city = np.tile([0, 1, 2, 3], 50)
    >>> country, sold = city // 2, np.arange(200) % 7
    >>> find_dependencies(np.stack([city, country, sold], axis=1))
    [Dependency(determinant=0, dependent=1)]
    """
    columns = codes.shape[1]
    if not len(codes):
        return []
    common = np.array([_largest_share(codes[:, j]) for j in range(columns)])
    pairs = columns * (columns - 1)
    found = []
    for a in range(columns):
        present = codes[:, a] >= 0
        known = codes if present.all() else codes[present]
        _, first, place = np.unique(known[:, a], return_index=True, return_inverse=True)
        repeats = len(known) - len(first)
        if repeats < FEWEST_REPEATS or 2 * repeats < len(known):
            continue
        for b in range(columns):
            if b == a or common[b] == 1 or repeats * np.log(common[b]) > np.log(MOST_BY_CHANCE / pairs):
                continue
            if (known[first, b][place] == known[:, b]).all():
                found.append(Dependency(a, b))
    return found


def contradictions(codes: Codes, known: Codes, dependency: Dependency) -> Flags:
    """Return a mask of the rows of ``codes`` (M, D) that contradict ``known`` (N, D).

    The determinant of such a row occurs in ``known`` with another dependent value. A row whose determinant is missing,
    or does not occur in ``known``, contradicts nothing.

    >>> known = np.array([[0, 5], [1, 6], [1, 6]])
    >>> contradictions(np.array([[0, 5], [1, 5], [2, 5]]), known, Dependency(0, 1)).tolist()
    [False, True, False]
    """
    a, b = dependency
    values, first = np.unique(known[:, a], return_index=True)
    place = np.minimum(np.searchsorted(values, codes[:, a]), len(values) - 1)
    broken: Flags = (codes[:, a] >= 0) & (values[place] == codes[:, a]) & (known[first[place], b] != codes[:, b])
    return broken


def _largest_share(codes: Codes) -> float:
    return float(np.unique(codes, return_counts=True)[1].max() / len(codes))


# --- rules: dependencies that a model enforces ---


@dataclass(frozen=True)
class Rule:
    """A dependency that held in all training rows, and that every sample keeps.

    ``keys`` are the plain numbers of the determinant, sorted, with NaN for a missing value last. NaN is a key only if
    all training rows without the determinant have the same dependent. ``values`` are the plain numbers of the
    dependent. ``slack`` is the probability that a new row breaks the rule.
    """

    determinant: str
    dependent: str
    keys: tuple[float, ...]
    values: tuple[float, ...]
    slack: float

    def log_conditional(self, log_p: Floats, y: Floats, dependent: Floats) -> Floats:
        """Return the log probability of dependents given their determinants y.

        ``log_p`` is the log probability of the dependents without the rule. With probability 1 - ``slack`` the rule
        gives the dependent, else the model draws it. The rule does not apply to a y that no training row had.
        """
        no_rule = np.full(len(y), np.inf)
        ruled = self.apply(y, no_rule)
        kept = (ruled == dependent) | (np.isnan(ruled) & np.isnan(dependent))
        with_rule = np.logaddexp(np.where(kept, math.log1p(-self.slack), -np.inf), math.log(self.slack) + log_p)
        return np.where(np.isposinf(ruled), log_p, with_rule)

    def apply(self, y: Floats, otherwise: Floats) -> Floats:
        """Return the dependent of every y, and ``otherwise`` for a y that no training row had."""
        keys = np.asarray(self.keys)
        place = np.minimum(np.searchsorted(keys, y), len(keys) - 1)
        known = (keys[place] == y) | (np.isnan(keys[place]) & np.isnan(y))
        return np.where(known, np.asarray(self.values)[place], otherwise)

    def nearest_key(self, y: Floats) -> Floats:
        """Return determinants y, with the nearest training value in place of a number that no training row had.

        >>> rule = Rule("code", "town", (1.0, 5.0, math.nan), (0.0, 1.0, 2.0), slack=0.1)
        >>> rule.nearest_key(np.array([1.0, 4.0, 9.0, math.nan]))
        array([ 1.,  5.,  5., nan])
        """
        keys = np.asarray(self.keys)[~np.isnan(self.keys)]
        if not len(keys):
            return y
        place = np.searchsorted(keys, y)
        below, above = keys[np.maximum(place - 1, 0)], keys[np.minimum(place, len(keys) - 1)]
        return np.where(np.isnan(y), y, np.where(y - below < above - y, below, above))

    def to_json(self) -> dict[str, Any]:
        pairs = [[None if np.isnan(n) else n for n in pair] for pair in zip(self.keys, self.values, strict=True)]
        return {"determinant": self.determinant, "dependent": self.dependent, "slack": self.slack, "pairs": pairs}

    @classmethod
    def from_json(cls, value: Any, names: Iterable[str]) -> Rule:
        """Return the rule that :meth:`to_json` wrote, between two of the columns ``names``. Raises TableError if it is
        invalid.
        """
        known = list(names)
        if not isinstance(value, dict) or not all(value.get(end) in known for end in ("determinant", "dependent")):
            raise TableError(f"a rule should name two columns, got {str(value)[:80]}")
        try:
            pairs = [[np.nan if n is None else float(n) for n in (key, item)] for key, item in value["pairs"]]
            slack = float(value["slack"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise TableError("a rule should have a slack and pairs of numbers") from None
        if not pairs or not 0 < slack < 1:
            raise TableError("a rule should have a slack and pairs of numbers")
        order = np.argsort([pair[0] for pair in pairs])
        keys, values = (tuple(pairs[i][k] for i in order) for k in (0, 1))
        return cls(value["determinant"], value["dependent"], keys, values, slack)


def find_rules(names: Sequence[str], y: Floats) -> list[Rule]:
    """Return one rule for every column that another column determines. The first such column is the determinant.

    Rules form no cycles: among columns that determine one another, the first in the table is free.
    """
    codes = codes_of(y)[0]
    pairs = find_dependencies(codes)
    rules: dict[int, Rule] = {}
    for dependent in range(len(names)):
        for determinant, other in pairs:
            if other == dependent and not _leads_to(rules, names, determinant, dependent):
                keys, first = np.unique(y[:, determinant], return_index=True)
                if np.isnan(keys[-1]) and len(np.unique(codes[codes[:, determinant] < 0, dependent])) > 1:
                    keys, first = keys[:-1], first[:-1]
                values = y[first, dependent]
                both = tuple(keys.tolist()), tuple(values.tolist())
                rules[dependent] = Rule(names[determinant], names[dependent], *both, PRIOR / (len(y) + 1))
                break
    return list(rules.values())


def _leads_to(rules: Mapping[int, Rule], names: Sequence[str], start: int, end: int) -> bool:
    """Return whether ``end`` is ``start``, or is reached from ``start`` by going from a column to its determinant."""
    seen = start
    while seen != end and seen in rules:
        seen = names.index(rules[seen].determinant)
    return seen == end


def order_of(names: Sequence[str], rules: Sequence[Rule]) -> list[str]:
    """Return the columns in the table's order, with every determinant moved before the columns that it determines."""
    determined = {rule.dependent: rule.determinant for rule in rules}
    order: list[str] = []

    def place(name: str) -> None:
        if name in order:
            return
        if name in determined:
            place(determined[name])
        order.append(name)

    for name in names:
        place(name)
    return order


def described_rules(rules: Sequence[Rule]) -> list[str]:
    """Return notes on the rules for the user."""
    groups: dict[str, list[str]] = {}
    for rule in rules:
        groups.setdefault(rule.determinant, []).append(rule.dependent)
    return [
        f"{determinant!r} determines {some(dependents, 8)} in every training row, and will in every sample"
        for determinant, dependents in groups.items()
    ]
