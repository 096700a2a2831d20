"""Constraints: relations between columns that the user knows to hold in every row.

    start <= end        a + b = c        a - b > 2        fixed(town, county)

A constraint applies to rows in which all of its columns are present. Columns with steps are scaled to whole numbers, so
0.1 + 0.2 equals 0.3. Dates are compared by time. A sum with a real column holds to nine digits. A fixed combination
allows the combinations of the fitted table.

Samples keep constraints exactly. A sum is kept by construction: its last column in the model's order is computed from
the other columns, if the column can take that value. Rows that still break a constraint are drawn again, so samples
follow the model's distribution conditioned on the constraints. The user is told how many rows were drawn again. Scores
ignore constraints.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from cubicflow.arguments import unknown_name
from cubicflow.saved import SavedValueError, from_json
from cubicflow.tables.arrow_types import Floats, amounts, is_date, is_number, shown
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.read.table import Table
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.sets import Flags
from cubicflow.tables.schema.usable_rows import Missing, pieces
from cubicflow.tables.table_error import TableError

BETWEEN = re.compile(r"(?P<relation><=|>=|==|=|<|>)|[+-]")  # what may stand between two terms
NUMBER = r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+"
FIXED = re.compile(r"fixed\s*\((.*)\)\s*", re.DOTALL)
CLOSE = 1e-9  # relative tolerance of a sum of real numbers
WHOLE = 1e-6  # absolute tolerance of a sum of whole numbers


@dataclass(frozen=True)
class Constraint(ABC):
    """A constraint on the columns ``names``. ``text`` is the constraint as the user wrote it."""

    text: str
    names: tuple[str, ...]

    @abstractmethod
    def broken(self, rows: pa.RecordBatch, schema: Schema) -> Flags:
        """Return which rows break the constraint."""

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text}


@dataclass(frozen=True)
class LinearConstraint(Constraint):
    """A comparison of a weighted sum of columns with a number: sum(factors * columns) ``relation`` ``bound``."""

    factors: tuple[int, ...]
    relation: str
    bound: float

    def broken(self, rows: pa.RecordBatch, schema: Schema) -> Flags:
        columns = [schema[name] for name in self.names]
        whole = [column for column in columns if column.has_steps]
        is_whole = len(whole) == len(columns)
        scale = 10.0 ** max((column.exact_decimals for column in whole), default=0) if is_whole else 1.0
        values = (number_of(column, rows.column(column.name)) * scale for column in columns)
        parts = [factor * (np.rint(y) if is_whole else y) for y, factor in zip(values, self.factors, strict=True)]
        off = np.sum(parts, axis=0) - self.bound * scale
        size = np.sum(np.abs(parts), axis=0)
        # sums of whole numbers and comparisons of two reals are exact; other sums of reals are rounded
        slack = WHOLE if is_whole else CLOSE * size if len(parts) > 2 or self.relation == "=" else 0.0
        with np.errstate(invalid="ignore"):
            found: Flags = {
                "=": np.abs(off) > slack,
                "<=": off > slack,
                "<": off >= -slack if is_whole else off >= 0,
                ">=": off < -slack,
                ">": off <= slack if is_whole else off <= 0,
            }[self.relation]
        found &= ~np.isnan(off)
        return found

    def solve(self, name: str, values: Mapping[str, Floats]) -> Floats:
        """Return the values of one column of an equality, computed from the values of the other columns."""
        factor = self.factors[self.names.index(name)]
        others = [f * values[n] for n, f in zip(self.names, self.factors, strict=True) if n != name]
        found: Floats = (self.bound - np.sum(others, axis=0)) / factor
        return found


@dataclass(frozen=True)
class FixedCombination(Constraint):
    """A constraint that allows only the combinations of values that the fitted table has."""

    allowed: frozenset[tuple[Any, ...]] = frozenset()

    def broken(self, rows: pa.RecordBatch, schema: Schema) -> Flags:
        every = combinations_of(self.names, rows, schema)
        return np.array([not (None in each or each in self.allowed) for each in every], dtype=np.bool_)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "allowed": sorted((list(each) for each in self.allowed), key=str)}


def combinations_of(names: Sequence[str], rows: pa.RecordBatch, schema: Schema) -> list[tuple[Any, ...]]:
    """Return the values of some columns for each row, as text; None for a missing value."""
    values = (schema[name].read(rows.column(name)).to_pylist() for name in names)
    texts = ([None if v is None or v != v else str(v) for v in each] for each in values)
    return list(zip(*texts, strict=True))


def number_of(column: Column, array: pa.Array) -> Floats:
    """Return values as numbers: dates in microseconds, NaN for a missing value."""
    return amounts(column.read(array))


# --- parsing ---


def read_constraint(text: str, schema: Schema) -> Constraint:
    """Return the constraint that a text states on columns of the schema.

    Raises:
        TableError: the text is invalid, or a column is unknown, not modelled, or holds no numbers to compare.
    """
    try:
        if (fixed := FIXED.fullmatch(text.strip())) is not None:
            return _fixed(text.strip(), fixed[1], schema)
        return _linear(text.strip(), schema)
    except TableError as error:
        raise error.about(f"constraint {text!r}") from None


def _fixed(text: str, inside: str, schema: Schema) -> FixedCombination:
    names = tuple(part.strip() for part in inside.split(",") if part.strip())
    if len(names) < 2:
        raise TableError("a fixed combination needs two columns or more; write for example fixed(town, county)")
    for name in names:
        _known(name, schema)
    if len(set(names)) < len(names):
        raise TableError("a fixed combination names a column twice; name it once")
    return FixedCombination(text, names)


def _linear(text: str, schema: Schema) -> LinearConstraint:
    sides, relation = _sides(text, schema)
    factors: dict[str, int] = {}
    bound = 0.0
    for side, sign in zip(sides, (1, -1), strict=True):
        for term, term_sign in side:
            if isinstance(term, str):
                factors[term] = factors.get(term, 0) + sign * term_sign
            else:
                bound -= sign * term_sign * term
    factors = {name: factor for name, factor in factors.items() if factor}
    if not factors:
        raise TableError("no column is left to compare; write for example start <= end")
    dates = [name for name in factors if is_date(schema[name].arrow_type)]
    for name in factors:
        column = _known(name, schema)
        if not is_number(column.arrow_type) and name not in dates:
            raise TableError(f"column {name!r} holds no numbers; use a fixed(...) combination for words")
    if dates and (len(dates) < len(factors) or sorted(factors.values()) != [-1, 1] or bound):
        raise TableError("a date can be compared with one other date only; write for example start <= end")
    return LinearConstraint(text, tuple(factors), tuple(factors.values()), relation, bound)


def _sides(text: str, schema: Schema) -> tuple[list[list[tuple[str | float, int]]], str]:
    """Return the terms on both sides of the relation, and the relation. A term is a column or a number with a sign."""
    names = [column.name for column in schema.columns]
    longest_first = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    term = re.compile(rf"(?P<name>{longest_first})(?=[ \t<>=+-]|$)|(?P<number>{NUMBER})|[+-]")
    sides: list[list[tuple[str | float, int]]] = [[]]
    relation, sign, wants_term, rest = "", 1, True, text
    while rest := rest.lstrip():
        found = (term if wants_term else BETWEEN).match(rest)
        if found is None and wants_term:
            word = re.split(r"[\s<>=+]", rest, maxsplit=1)[0] or rest
            raise TableError(unknown_name("the table", "column", word, names))
        if found is None or (relation and found.lastgroup == "relation"):
            raise TableError(f"the text is invalid from {rest[:20]!r} on; write for example a + b = c")
        rest = rest[found.end() :]
        if found.lastgroup == "relation":
            relation, wants_term = "=" if found[0] == "==" else found[0], True
            sides.append([])
        elif found.lastgroup is None:
            sign, wants_term = (-sign if found[0] == "-" else sign), True
        else:
            sides[-1].append((found[0] if found.lastgroup == "name" else float(found[0]), sign))
            sign, wants_term = 1, False
    if not relation or wants_term:
        raise TableError(
            "the text is not a comparison; write for example start <= end, a + b = c or fixed(town, county)"
        )
    return sides, relation


def _known(name: str, schema: Schema) -> Column:
    names = [column.name for column in schema.columns]
    if name not in names:
        raise TableError(unknown_name("the table", "column", name, names))
    column = schema[name]
    if column.role in ("dropped", "weights"):
        raise TableError(f"column {name!r} is not modelled, so samples lack it; leave the constraint out")
    return column


def kept_rows(constraints: Sequence[Constraint], rows: pa.RecordBatch, schema: Schema) -> Flags:
    """Return which rows keep all constraints. The rows may lack columns that no constraint names."""
    kept = np.ones(len(rows), np.bool_)
    for constraint in constraints:
        kept &= ~constraint.broken(rows, schema)
    return kept


# --- learning, and the run folder ---


def learn_constraints(
    texts: Sequence[str], schema: Schema, table: Table, missing: Missing | str
) -> tuple[Constraint, ...]:
    """Return the constraints of texts, with the combinations that the table has.

    Raises:
        TableError: some rows break a constraint. The message gives their number and the first row.
    """
    found: list[Constraint] = [read_constraint(text, schema) for text in texts]
    if not found:
        return ()
    rows_read, broken = 0, Counter[int]()
    first: dict[int, str] = {}  # the first row that breaks a constraint
    seen = [set[tuple[str, ...]]() for _ in found]
    for piece in pieces(table, schema.check(table), missing):
        rows = piece.batch
        rows_read += len(rows)
        for i, each in enumerate(found):
            if isinstance(each, FixedCombination):
                seen[i].update(pair for pair in combinations_of(each.names, rows, schema) if None not in pair)
            elif len(wrong := np.flatnonzero(each.broken(rows, schema))):
                broken[i] += len(wrong)
                values = ", ".join(f"{name} = {shown(rows.column(name).take(wrong[:1]))[0]}" for name in each.names)
                first.setdefault(i, f"row {piece.numbers[wrong[0]] + 1:,} ({values})")
    for i, row in first.items():
        raise TableError(
            f"constraint {found[i].text!r}: {broken[i]:,} of {rows_read:,} rows break it, the first is {row}; correct "
            "those rows, or leave the constraint out"
        )
    return tuple(
        replace(each, allowed=frozenset(pairs)) if isinstance(each, FixedCombination) else each
        for each, pairs in zip(found, seen, strict=True)
    )


@dataclass(frozen=True)
class SavedConstraint:
    """A constraint in a run folder. A fixed combination has the combinations that it allows."""

    text: str
    allowed: list[list[str]] | None = None


def constraints_from_json(value: Any, schema: Schema) -> tuple[Constraint, ...]:
    """Return the constraints saved in a run folder. Every field is checked; TableError if one is invalid."""
    if not isinstance(value, list):
        raise TableError("constraints should be a list")
    return tuple(_from_json(each, schema) for each in value)


def _from_json(value: Any, schema: Schema) -> Constraint:
    try:
        saved = from_json(SavedConstraint, value)
    except SavedValueError as error:
        raise TableError(f"a saved constraint {error}") from None
    constraint = read_constraint(saved.text, schema)
    if not isinstance(constraint, FixedCombination):
        return constraint
    if saved.allowed is None or any(len(each) != len(constraint.names) for each in saved.allowed):
        raise TableError(
            f"the fixed combination {constraint.text!r} should have a list of allowed combinations, each a list of "
            f"{len(constraint.names)} texts"
        )
    return replace(constraint, allowed=frozenset(map(tuple, saved.allowed)))
