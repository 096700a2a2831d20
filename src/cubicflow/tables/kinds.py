"""Deciding what a column is, from the facts and what the user said."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cubicflow.tables.arrow_types import is_date, is_text, type_name
from cubicflow.tables.column import Column, Kind, Level, Role
from cubicflow.tables.errors import TableError, some
from cubicflow.tables.facts import Facts
from cubicflow.tables.grid import LARGEST, MOST_STEPS, Grid
from cubicflow.tables.text_types import NOT_DECIMAL, fits

MOST_DIGITS = 8  # decimals kept in samples of a real column; more of them are noise
ROWS_PER_LEVEL = 10  # numbers without a step are levels only if they repeat this often


def decide(facts: Facts, told: str | None, role: Role) -> Column:
    """A column without its map. ``told`` is the user's word for its kind."""
    facts.check()
    name, type = facts.name, type_name(facts.type)
    if len(facts.distinct) == 1:
        return Column(name, "constant", type, "constant", value=_plain(next(iter(facts.distinct))))
    if told == "constant":
        raise TableError(f"column {name!r} is not constant: it holds {some(_listed(facts), 3)}")
    if is_text(facts.type):
        return _text(facts, told, role)
    if pa.types.is_boolean(facts.type):
        if told not in (None, "boolean", "categorical"):
            raise TableError(f"column {name!r} holds true and false, so it cannot be {told}")
        return Column(name, "boolean", type, role, levels=(False, True))
    if told == "categorical" or told == "boolean":
        return _numbered_levels(facts, told, role)
    if is_date(facts.type):
        if told not in (None, "datetime"):
            raise TableError(f"column {name!r} holds dates, so it cannot be {told}")
        return Column(name, "datetime", type, role, grid=_whole_grid(facts))
    if told == "datetime":
        raise TableError(f"column {name!r} holds numbers; write dates as 2024-12-31 or 2024-12-31 23:59:59")
    if told == "real":
        return _real(facts, role)
    if pa.types.is_integer(facts.type):
        return Column(name, "integer", type, role, grid=_whole_grid(facts))
    return _fractional(facts, told, role)


def _text(facts: Facts, told: str | None, role: Role) -> Column:
    words = _listed(facts)
    if told not in (None, "categorical"):
        raise TableError(f"column {facts.name!r} cannot be {told}: it holds text such as {some(words, 3)}")
    if not facts.few or len(words) == facts.rows:
        how = "every value is different" if len(words) == facts.rows else f"it holds more than {facts.most} words"
        raise TableError(
            f"column {facts.name!r} is text and {how} ({some(words, 3)}), so there is nothing to learn from it"
            f"{f'; {hint}' if (hint := near_numbers(words)) else ''}; leave it out",
            f"--drop {facts.name}",
        )
    return Column(facts.name, "categorical", type_name(facts.type), role, levels=tuple(words))


def near_numbers(words: Sequence[str]) -> str | None:
    """What keeps words from being numbers, where they look as if they were meant to be: 1,5 or a ? among numbers."""
    # codes such as 007 are words on purpose
    odd = [word for word in words if not re.match(NOT_DECIMAL, word) and not fits(pa.array([word]), pa.float64())]
    if 0 < len(odd) < len(words) / 2:
        is_no = "is no number" if len(odd) == 1 else "are no numbers"
        return f"{some(odd, 3)} {is_no}; write numbers as 1234.5, and leave missing values empty"
    digits = sum(char.isdigit() for word in odd[:50] for char in word)
    letters = sum(char.isalpha() for word in odd[:50] for char in word)
    if digits > 4 * letters:
        return "if these are numbers or dates, write them as 1234.5 and 2024-12-31"
    return None


def _numbered_levels(facts: Facts, told: str, role: Role) -> Column:
    if not facts.few or len(facts.distinct) == facts.rows:
        raise TableError(f"column {facts.name!r} holds too many different values to be {told}")
    if told == "boolean" and len(facts.distinct) != 2:
        raise TableError(f"column {facts.name!r} holds {len(facts.distinct)} different values, so it is not boolean")
    kind: Kind = "boolean" if told == "boolean" else "categorical"
    return Column(facts.name, kind, type_name(facts.type), role, levels=tuple(_listed(facts)))


def _whole_grid(facts: Facts) -> Grid:
    grid = facts.finder.grid()
    if grid is None or grid.count > LARGEST:
        raise TableError(
            f"column {facts.name!r} spans more than 2^53 steps, from {facts.smallest:.6g} to {facts.largest:.6g}; if "
            "it holds identifiers, leave it out",
            f"--drop {facts.name}",
        )
    return grid


def _real(facts: Facts, role: Role) -> Column:
    whole = pa.types.is_integer(facts.type)
    known = not facts.finder.lost and 0 < facts.finder.decimals <= MOST_DIGITS
    return Column(
        facts.name,
        "real",
        "double" if whole else type_name(facts.type),
        role,
        decimals=facts.finder.decimals if known else None,
    )


def _fractional(facts: Facts, told: str | None, role: Role) -> Column:
    name, type, grid = facts.name, type_name(facts.type), facts.finder.grid()
    if told == "integer":
        if grid is None or grid.decimals:
            raise TableError(f"column {name!r} holds fractions, so it cannot be integer")
        return Column(name, "integer", type, role, grid=grid)
    if told == "stepped" and grid is None:
        raise TableError(f"column {name!r} has no step of which all its values are multiples, so it cannot be stepped")
    if grid is not None and (grid.count <= MOST_STEPS or told == "stepped"):
        return Column(name, "stepped", type, role, grid=grid)
    if facts.few and len(facts.distinct) * ROWS_PER_LEVEL <= facts.rows:
        return Column(name, "levels", type, role, levels=tuple(_listed(facts)))
    return _real(facts, role)


def _listed(facts: Facts) -> list[Any]:
    return sorted(map(_plain, facts.distinct))


def _plain(value: Any) -> Level:
    return value.item() if hasattr(value, "item") else value  # type: ignore[no-any-return]
