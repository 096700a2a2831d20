"""The kinds of columns. Each has a record: its codec, which values it takes, and its properties.

A new kind is a record and a name in ``KINDS``. A kind with a codec of its own also has a subclass of
:class:`~cubicflow.tables.kinds.column.Column`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from cubicflow.tables.arrow_types import is_date, is_number, is_readable, is_text, type_name
from cubicflow.tables.kinds.column import Column, Role
from cubicflow.tables.kinds.facts import LARGEST, Facts, Grid
from cubicflow.tables.kinds.gridded import MOST_STEPS, Gridded
from cubicflow.tables.kinds.listed import Constant, Dropped, Listed, near_numbers
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.table_error import TableError, some

MOST_CONTEXT_WORDS = 1 << 12  # words; each word of a context column is one feature
ROWS_PER_LEVEL = 10  # rows; numbers without a step are levels only if each value has this many rows on average
MOST_DIGITS = 8  # decimals of samples; numbers with more decimals are not rounded


@dataclass(frozen=True)
class ColumnKind:
    """A kind of column.

    Attributes:
        name: the name of the kind.
        codec: the class of its columns.
        infer: returns the column of a column's facts, the name of the requested kind and the role; None if this kind
            does not take the values. Raises TableError if they cannot be of the requested kind.
        roles: the roles that its columns can have.
        accepts: tells whether values of an arrow type can be of this kind.
        is_ordered: whether the values of a list have a natural order.
        is_circle: whether the two ends of the range are the same point.
    """

    name: str
    codec: type[Column]
    infer: Callable[[Facts, str | None, Role], Column | None]
    roles: tuple[Role, ...] = ("model", "context")
    accepts: Callable[[pa.DataType], bool] = is_readable
    is_ordered: bool = False
    is_circle: bool = False


def _cannot_be(facts: Facts, requested: str | None) -> TableError:
    """Return the error for values that cannot be of the requested kind."""
    if is_text(facts.type):
        examples = some(facts.sorted_distinct(), 3)
        return TableError(
            f"column {facts.name!r} cannot be {requested}: it holds text such as {examples}; choose another kind"
        )
    what = "true and false" if pa.types.is_boolean(facts.type) else "dates" if is_date(facts.type) else "numbers"
    return TableError(f"column {facts.name!r} holds {what}, so it cannot be {requested}; choose another kind")


# --- lists ---


def _constant(facts: Facts, requested: str | None, role: Role) -> Column | None:
    if len(facts.distinct) == 1 and facts.gaps:  # the model still learns the probability of a missing value
        return _listed(facts, role, "levels")
    if len(facts.distinct) == 1:
        return Constant(facts.name, type_name(facts.type), "constant", value=facts.sorted_distinct()[0])
    if requested == "constant":
        raise TableError(
            f"column {facts.name!r} is not constant: it holds {some(facts.sorted_distinct(), 3)}; choose another kind"
        )
    return None


def _listed(facts: Facts, role: Role, kind: str) -> Listed:
    if not is_text(facts.type) and (not facts.all_distinct_known or len(facts.distinct) == facts.rows):
        raise TableError(f"column {facts.name!r} holds too many different values to be {kind}; choose another kind")
    return Listed(facts.name, type_name(facts.type), role, levels=tuple(facts.sorted_distinct()), kind=kind)


def _boolean(facts: Facts, requested: str | None, role: Role) -> Column | None:
    """Truth values, or any two numbers that the user declares to be such."""
    if pa.types.is_boolean(facts.type):
        if requested not in (None, "boolean", "categorical"):
            raise _cannot_be(facts, requested)
        return Listed(facts.name, type_name(facts.type), role, levels=(False, True), kind="boolean")
    if requested != "boolean":
        return None
    if is_text(facts.type):
        raise _cannot_be(facts, requested)
    column = _listed(facts, role, "boolean")
    if len(column.levels) != 2:
        raise TableError(
            f"column {facts.name!r} holds {len(column.levels)} different values, expected 2 for boolean; choose "
            "another kind"
        )
    return column


def _categorical(facts: Facts, requested: str | None, role: Role) -> Column | None:
    """Words, or numbers that the user declares categorical."""
    if not is_text(facts.type):
        return _listed(facts, role, "categorical") if requested == "categorical" else None
    if requested not in (None, "categorical"):
        raise _cannot_be(facts, requested)
    words = facts.sorted_distinct()
    most = MOST_CONTEXT_WORDS if role == "context" else facts.max_distinct
    if len(words) > most or (facts.never_repeats and requested is None):
        why = f"it holds more than {most} words" if len(words) > most else "every value is different"
        raise TableError(
            f"column {facts.name!r} is text and {why} ({some(words, 3)}), so there is nothing to learn from it"
            f"{f'; {hint}' if (hint := near_numbers(words)) else ''}; leave it out",
            drop=[facts.name],
        )
    return _listed(facts, role, "categorical")


def _levels(facts: Facts, requested: str | None, role: Role) -> Column | None:
    """Numbers that repeat, from a short list without a common step."""
    if requested is None and facts.all_distinct_known and len(facts.distinct) * ROWS_PER_LEVEL <= facts.rows:
        return _listed(facts, role, "levels")
    return None


# --- steps ---


def _datetime(facts: Facts, requested: str | None, role: Role) -> Column | None:
    """Dates, and times of any resolution with or without a time zone."""
    if not is_date(facts.type):
        if requested == "datetime":
            raise TableError(f"column {facts.name!r} holds numbers; write dates as 2024-12-31 or 2024-12-31 23:59:59")
        return None
    if requested not in (None, "datetime"):
        raise _cannot_be(facts, requested)
    return Gridded(facts.name, type_name(facts.type), role, grid=_whole_grid(facts), kind="datetime")


def _integer(facts: Facts, requested: str | None, role: Role) -> Column | None:
    """Whole numbers of any numeric type."""
    name, type = facts.name, type_name(facts.type)
    if pa.types.is_integer(facts.type):
        whole = requested in (None, "integer", "stepped", "datetime")
        return Gridded(name, type, role, grid=_whole_grid(facts), kind="integer") if whole else None
    if requested != "integer":
        return None
    grid = facts.finder.grid()
    if grid is None or grid.decimals:
        raise TableError(f"column {name!r} holds fractions, so it cannot be integer; choose stepped or real")
    return Gridded(name, type, role, grid=grid, kind="integer")


def _stepped(facts: Facts, requested: str | None, role: Role) -> Column | None:
    """Numbers that are multiples of a common step, counted from the smallest number, such as 0.23 or 61.5."""
    if requested not in (None, "stepped"):
        return None
    grid = facts.finder.grid()
    if grid is None and requested is not None:
        raise TableError(
            f"the values of column {facts.name!r} have no common step, so it cannot be stepped; choose the kind real"
        )
    if grid is None or (grid.count > MOST_STEPS and requested is None):
        return None
    return Gridded(facts.name, type_name(facts.type), role, grid=grid, kind="stepped")


def _whole_grid(facts: Facts) -> Grid:
    """Return the grid of a column of whole numbers or dates. Raise TableError if the grid is too long."""
    grid = facts.finder.grid()
    if grid is None or grid.count > LARGEST:
        raise TableError(
            f"column {facts.name!r} spans more than 2^53 steps, from {facts.smallest:.6g} to {facts.largest:.6g}; if "
            "it holds identifiers, leave it out",
            drop=[facts.name],
        )
    return grid


# --- real numbers ---


def _circular(facts: Facts, requested: str | None, role: Role) -> Column | None:
    """Angles, hours of the day: the two ends of the range are the same point. The ends are set when it is settled."""
    if requested != "circular":
        return None
    if not is_number(facts.type):
        raise _cannot_be(facts, requested)
    return Real(facts.name, type_name(facts.type), role, decimals=_decimals(facts), kind="circular")


def _real(facts: Facts, requested: str | None, role: Role) -> Column | None:  # noqa: ARG001 - takes all numbers
    type = "double" if pa.types.is_integer(facts.type) else type_name(facts.type)
    known = _decimals(facts)
    return Real(facts.name, type, role, decimals=0 if known is None and facts.too_large_for_steps else known)


def _decimals(facts: Facts) -> int | None:
    return facts.finder.decimals if not facts.finder.no_grid and 0 < facts.finder.decimals <= MOST_DIGITS else None


def _never(facts: Facts, requested: str | None, role: Role) -> None:
    """A kind that only other kinds or options make."""


RECORDS = {
    kind.name: kind
    for kind in (
        ColumnKind("real", Real, _real, ("model", "context", "weights"), is_number),
        ColumnKind("circular", Real, _circular, accepts=is_number, is_circle=True),
        ColumnKind("circular steps", Gridded, _never, accepts=is_number, is_circle=True),
        ColumnKind("levels", Listed, _levels, is_ordered=True),
        ColumnKind("stepped", Gridded, _stepped, accepts=is_number),
        ColumnKind("integer", Gridded, _integer, accepts=is_number),
        ColumnKind("datetime", Gridded, _datetime, accepts=is_date),
        ColumnKind("categorical", Listed, _categorical),
        ColumnKind("boolean", Listed, _boolean),
        ColumnKind("constant", Constant, _constant, ("constant",)),
        ColumnKind("dropped", Dropped, _never, ("dropped",)),
    )
}
