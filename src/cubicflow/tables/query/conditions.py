"""Parsing of conditions as a user writes them.

    cut=Ideal   cut!=Ideal   color in D,E   color not in D,E   price>5000   price>=5000   price in 10..20
    price is missing         price is not missing

Names and words may hold any character. The column is the shortest known name that is followed by a relation. A word of
``in`` that holds a comma is written in double quotes. In Python, a mapping from columns to values is an alternative: a
value is an equality, a list is a choice, a pair (low, high) is a closed range with None for an open end, and None is a
missing value.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cubicflow.arguments import unknown_name
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.schema import Schema
from cubicflow.tables.table_error import TableError, some

# longer relations first, so that <= does not match as <
RELATION = re.compile(
    r"\s*(not\s+in(?=[\s\"])|in(?=[\s\"])|is\s+not\s+missing\s*$|is\s+missing\s*$|<=|>=|!=|==|=|<|>)\s*"
)
END = r"(\S*(?:\s\d\d?:\S*)?)"  # the time of a date may follow a space
RANGE = re.compile(rf"{END}\s*\.\.\s*{END}")

Given = Mapping[str, object] | Sequence[str] | str | None


@dataclass(frozen=True)
class Condition:
    """One condition on one column.

    Attributes:
        column: the name of the column.
        relation: one of =, !=, <, <=, >, >=, in, not in, range, missing, present.
        values: the values to compare with, as text or as values of the column's type. A range has two values, None for
            an open end.
        text: the condition as text for messages.

    >>> read_condition("color in D,E", ["color", "price"])
    Condition(column='color', relation='in', values=('D', 'E'), text='color in D,E')
    >>> read_condition("price in 10..20", ["color", "price"]).relation
    'range'
    """

    column: str
    relation: str
    values: tuple[object, ...]
    text: str


def read_condition(text: str, names: Sequence[str]) -> Condition:
    """Return the condition that a text states on one of the columns ``names``. Raise TableError for invalid text."""
    stripped = text.strip()
    for name in sorted(names, key=len):
        if stripped.startswith(name) and (found := RELATION.match(stripped, len(name))) is not None:
            return _condition(name, " ".join(found[1].split()), stripped[found.end() :], stripped)
    found = RELATION.search(stripped)
    if found is None or not stripped[: found.start()].strip():
        raise TableError(
            "a condition should be column=value, column>5, column in a,b, column in 1..9 or column is missing, "
            f"got {text!r}"
        )
    raise TableError(
        f"condition {text!r}: {unknown_name('the table', 'column', stripped[: found.start()].strip(), names)}"
    )


def _condition(name: str, relation: str, rest: str, text: str) -> Condition:
    if relation.startswith("is"):
        return Condition(name, "missing" if relation == "is missing" else "present", (), text)
    if not rest:
        raise TableError(f"condition {text!r} compares {name!r} with nothing; give a value")
    if relation in ("in", "not in"):
        if relation == "in" and (ends := RANGE.fullmatch(rest)) is not None:
            if not ends[1] and not ends[2]:
                raise TableError(
                    f"condition {text!r} is a range without ends; give at least one end, such as 10..20 or 10.."
                )
            return Condition(name, "range", (ends[1] or None, ends[2] or None), text)
        words = next(csv.reader([rest], skipinitialspace=True), [])
        if not all(word.strip() for word in words):
            raise TableError(f"condition {text!r} has an empty value between its commas; fill it, or remove a comma")
        return Condition(name, relation, tuple(word.strip() for word in words), text)
    return Condition(name, "=" if relation == "==" else relation, (rest,), text)


def second_condition(text: str, names: Sequence[str]) -> str | None:
    """Return the second condition in a text with two conditions separated by a comma, such as ``a=1,b=2``; else None.

    >>> second_condition("a=1,b=2", ["a", "b"])
    'b=2'
    """
    for comma in re.finditer(",", text):
        rest = text[comma.end() :].strip()
        if any(rest.startswith(name) and RELATION.match(rest, len(name)) for name in names):
            return rest
    return None


def read_conditions(given: Given, schema: Schema) -> list[Condition]:
    """Return the conditions given as texts or as a mapping from columns to values."""
    names = [column.name for column in schema.columns]
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [_from_value(name, value, names) for name, value in given.items()]
    return [read_condition(text, names) for text in ([given] if isinstance(given, str) else given)]


def _from_value(name: str, value: object, names: Sequence[str]) -> Condition:
    if name not in names:
        raise TableError(unknown_name("the table", "column", str(name), names))
    if value is None:
        return Condition(name, "missing", (), f"{name} is missing")
    if isinstance(value, tuple):
        if len(value) != 2 or value == (None, None):
            raise TableError(f"the range of column {name!r} should be (low, high), None for an open end, got {value!r}")
        ends = "..".join("" if end is None else str(end) for end in value)
        return Condition(name, "range", value, f"{name} in {ends}")
    if isinstance(value, list | set | frozenset):
        if not value:
            raise TableError(f"the list of values of column {name!r} is empty; give at least one")
        values = tuple(sorted(value, key=str))
        return Condition(name, "in", values, f"{name} in {','.join(map(str, values))}")
    return Condition(name, "=", (value,), f"{name}={value}")


def context_values(conditions: Sequence[Condition], schema: Schema) -> dict[str, object]:
    """Return the values of the context columns. Raise TableError unless each value comes from one equality."""
    names = {column.name for column in schema.context}
    found: dict[str, object] = {}
    for condition in conditions:
        if condition.column not in names:
            continue
        if condition.relation != "=":
            raise TableError(
                f"condition {condition.text!r}: column {condition.column!r} is a context column, which has no "
                "distribution in the model; give it one value"
            )
        if condition.column in found:
            both = f"{found[condition.column]!r} and {condition.values[0]!r}"
            raise TableError(f"context column {condition.column!r} is given two values, {both}; give one")
        found[condition.column] = condition.values[0]
    return found


def column_of(schema: Schema, condition: Condition) -> Column:
    """Return the column of a condition. Raise TableError if the model does not know the column."""
    column = schema[condition.column]
    if column.role in ("dropped", "weights"):
        was = "left out of the fit" if column.role == "dropped" else "the weight of the rows"
        raise TableError(
            f"condition {condition.text!r}: column {column.name!r} was {was}, so the model lacks it; leave it out"
        )
    return column


def texts_of(conditions: Sequence[Condition]) -> str:
    """Return conditions as text for messages: ``'a=1', 'b>2'``."""
    return some([condition.text for condition in conditions])
