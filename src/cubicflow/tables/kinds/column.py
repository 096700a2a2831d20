"""What every kind of column answers: what it is, how its values become numbers, and what the likelihood counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import (
    Floats,
    exact_cast,
    fits,
    floats,
    is_date,
    is_number,
    is_readable,
    is_text,
    plain_text,
    read_text,
    shown,
    type_of,
    words_as,
)
from cubicflow.tables.kinds.facts import Facts as Facts  # for the kinds
from cubicflow.tables.maps import CodeCounts, Map, Scaled, map_from_json
from cubicflow.tables.table_error import TableError, some

Role = Literal["model", "context", "weights", "constant", "dropped"]
Level = str | int | float | bool
Bounds = tuple[float, float]
Kind = type["Column"]
Holds = Callable[[pa.DataType], bool]
Parsers = dict[str, Callable[[Any], Any]]

ABSURD = 1e12  # standard deviations; the square of much more is no float32


class Evidence(NamedTuple):
    """What a column is settled by: facts of all rows, a sample of training rows, and what the user said of it."""

    facts: Facts
    sample: pa.Table
    others: Sequence[Column]  # those whose values have an order
    told: bool  # whether the user named its kind
    transform: str | None
    bounds: Bounds | None
    atoms: bool = False  # whether single values may have probabilities of their own


@dataclass(frozen=True)
class Column(ABC):
    """A column of a table. Each kind of column is a subclass.

    In the order in which a column is used:

    1. :meth:`infer` makes the column of what a pass over the table showed, :meth:`settle` adds what a sample of rows
       decides, and :meth:`learn` the map that the counts of the training rows make.
    2. :meth:`encode` turns values into numbers y, a code for each step or level, or the value itself; :meth:`decode`
       turns y back into values. ``map`` carries y (code + u for a code, with noise u in (0, 1)) to the real line.
    3. The likelihood counts the probability of a code where ``counts_mass`` is true, a density per unit elsewhere;
       :meth:`describe` says so. A column with the role ``"context"`` gives :meth:`context` features instead.
    4. :meth:`to_json` keeps the column in a run folder, :meth:`from_json` reads it and trusts nothing.

    Attributes:
        type: the name of its arrow type.
        role: ``"model"``, ``"context"``, ``"weights"``, ``"constant"`` or ``"dropped"``.
        map: from y to the flow's numbers; None where the flow sees none.
    """

    kind: ClassVar[str]
    roles: ClassVar[tuple[Role, ...]] = ("model", "context")
    counts_mass: ClassVar[bool] = True
    is_list: ClassVar[bool] = False  # of values, rather than places on a line
    is_ordered: ClassVar[bool] = True  # by the values themselves
    is_measured: ClassVar[bool] = False  # in numbers that can be transformed and bounded
    on_calendar: ClassVar[bool] = False
    is_circle: ClassVar[bool] = False  # whether its two ends are one point
    holds: ClassVar[Holds] = staticmethod(is_readable)
    own: ClassVar[Parsers] = {}  # what this kind alone has, and how it is read from JSON
    mapped: ClassVar[tuple[Role, ...]] = ("model", "context", "weights")  # the roles in which it has a map

    name: str
    type: str
    role: Role = "model"
    map: Map | None = None

    # --- what it is ---

    @classmethod
    @abstractmethod
    def infer(cls, facts: Facts, told: Kind | None, role: Role) -> Column | None:
        """The column, if it is of this kind; None if it is for another kind to take.

        ``told`` is the kind that the user asked for. Raises TableError where the values cannot be of that kind.
        """

    def settle(self, seen: Evidence) -> tuple[Column, list[str]]:  # noqa: ARG002 - for kinds that need it
        """The column with what a sample of training rows decides, and remarks for the user."""
        return self, []

    def learn(self, counts: CodeCounts, rows: int, bounds: Bounds | None) -> Self:  # noqa: ARG002
        """The column with the map that the codes of ``rows`` training rows make."""
        return self

    # --- values to numbers and back ---

    @abstractmethod
    def encode(self, array: pa.Array) -> Floats:
        """y of every value of an array without gaps. Refuses a value that does not belong."""

    def encode_any(self, array: pa.Array) -> Floats:
        """y of every value of an array without gaps, inf for each that does not belong. Limits do not matter here."""
        if not len(array):
            return np.empty(0)
        try:
            return self.encode(array)
        except TableError:  # halve what is refused until the values that do not belong are alone
            if len(array) == 1:
                return np.array([np.inf])
            half = len(array) // 2
            return np.concatenate([self.encode_any(array[:half]), self.encode_any(array[half:])])

    @abstractmethod
    def decode(self, y: Floats) -> pa.Array:
        """Values of the column's own type, each the one nearest to y that a sample may be."""

    def rounded(self, y: Floats) -> Floats:
        """Drawn numbers as they are after they have become values: with the digits that samples have."""
        return y

    def read(self, array: pa.Array) -> pa.Array:
        """Text read as the column's type, and dictionaries spelled out."""
        if is_text(self.arrow_type):
            return plain_text(array)
        if not is_text(array.type):
            return array
        attempts = [pa.float64()] if is_number(self.arrow_type) else [self.arrow_type]
        if pa.types.is_integer(self.arrow_type):  # 3.0 is a whole number too
            attempts = [pa.int64(), pa.float64()]
        for type in attempts:
            try:
                return read_text(array, type)
            except pa.ArrowInvalid:
                pass
        wrong = next(text for text in array.to_pylist() if not fits(pa.array([text]), attempts[-1]))
        raise TableError(f"column {self.name!r} should hold {self.words}, found {wrong!r}")

    def given(self, array: pa.Array) -> pa.Array:
        """Values of a context column as its own type, or as they were read where that cannot hold them: 2.5 rooms."""
        read = self.read(array)
        if is_text(self.arrow_type):
            return words_as(read, self.arrow_type)
        own = exact_cast(read, self.arrow_type)
        return read if own.null_count else own

    @cached_property
    def arrow_type(self) -> pa.DataType:
        return type_of(self.type)

    @property
    def words(self) -> str:
        """What the column holds, for messages."""
        return "known values"

    @property
    def decimals(self) -> int | None:
        """The digits after the point with which values are written as text; None for all there are."""
        return None

    def values(self, values: Sequence[Level]) -> pa.Array:
        """Values as JSON keeps them (dates as whole numbers) as an arrow array, text as plain strings."""
        type = self.arrow_type
        if is_text(type):
            return pa.array(values, type=pa.string())
        if is_date(type):
            return pa.array(values, type=pa.int32() if pa.types.is_date32(type) else pa.int64()).cast(type)
        if pa.types.is_decimal(type):
            return pa.array([f"{value:.{type.scale}f}" for value in values], type=pa.string()).cast(type)
        return pa.array(values, type=type)

    # --- its part in the likelihood ---

    @property
    def needed_map(self) -> Map:
        if self.map is None:
            raise TableError(f"column {self.name!r} has no map")
        return self.map

    @property
    def context_width(self) -> int:
        """The number of context features."""
        return 1

    def context(self, array: pa.Array) -> Floats:
        """Context features (N, context_width): the middle of the value's step on the flow's own scale."""
        return self.needed_map.forward(self.encode(array) + 0.5 * self.counts_mass)[0][:, None]

    def describe(self) -> str:
        """What the likelihood counts here, in words."""
        if self.role == "context":
            return "given: the likelihood is conditional on it"
        return "weight of the row" if self.role == "weights" else self.counted

    @property
    @abstractmethod
    def counted(self) -> str:
        """What the likelihood counts of a column that is modelled, in words."""

    # --- pictures ---

    def drawn(self, array: pa.Array) -> Floats:
        """Where values lie on an axis."""
        return floats(array)

    @property
    def drawn_step(self) -> float | None:
        """The distance of neighbouring values on that axis; None for numbers without a step."""
        return None

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the values of a list, in the order of their codes."""
        return ()

    # --- JSON ---

    def to_json(self) -> dict[str, Any]:
        own = {key: getattr(self, key) for key in self.own}
        found = {"name": self.name, "kind": self.kind, "type": self.type, "role": self.role, **own, "map": self.map}
        return {key: _plain(value) for key, value in found.items() if value is not None}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Column:
        """Trusts nothing: what comes back can be encoded and decoded without failing."""
        if unknown := sorted(value.keys() - {"name", "kind", "type", "role", "map", *cls.own}):
            raise TableError(f"a column of kind {cls.kind} has no {unknown[0]!r}")
        name, type, role = (value.get(key) for key in ("name", "type", "role"))
        if not isinstance(name, str) or not isinstance(type, str):
            raise TableError("a column needs a name and a type")
        if role not in cls.roles:
            raise TableError(f"column {name!r} is {cls.kind} and has the role {role!r}, which is none")
        try:
            map = map_from_json(value["map"]) if "map" in value else None
            column = cls(name, type, role, map, **{key: parse(value.get(key)) for key, parse in cls.own.items()})
            column.check()
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise TableError(f"column {name!r} is not described rightly: {error}") from None
        return column

    def check(self) -> None:
        """Raise a ValueError where what was read from JSON does not fit together."""
        if not type(self).holds(self.arrow_type):
            raise ValueError(f"it is {self.kind}, and its type is {self.type}")
        if self.map is None and self.role in self.mapped:
            raise ValueError("it has no map")


class Quantity(Column):
    """Numbers or dates: values that are places on a line."""

    is_measured: ClassVar[bool] = True
    holds: ClassVar[Holds] = staticmethod(is_number)

    def encode(self, array: pa.Array) -> Floats:
        array = self.read(array)
        return self._within_limits(self.numbers(array), array)

    def encode_any(self, array: pa.Array) -> Floats:
        return super(Quantity, replace(self, map=None)).encode_any(array)

    @abstractmethod
    def numbers(self, array: pa.Array) -> Floats:
        """y of values of the column's own family of types, whatever its limits."""

    def finite(self, array: pa.Array) -> Floats:
        """The values as float64, if none is infinite."""
        values = floats(array)
        infinite = ~np.isfinite(values)
        if infinite.any():
            raise TableError(f"column {self.name!r} holds {int(infinite.sum())} infinite values; remove those rows")
        return values

    def transformed(self, transform: str, smallest: float, sample: Floats, *, start: float, unit: float) -> Scaled:
        """The shape that the user asked for, of ``start`` + ``unit`` y."""
        if transform == "log":
            # a step from 0 to 1 has a logarithm, the number 0 has none
            if smallest < 0 or (smallest == 0 and not self.counts_mass):
                raise TableError(
                    f"column {self.name!r} holds {smallest:g}, which has no logarithm; give bounds with a lower end "
                    "below all values, or transform it by asinh instead",
                    f"--transform {self.name}=asinh",
                )
            return Scaled("log", start=start, unit=unit)
        centre, spread = middle(sample)
        return Scaled("asinh", centre=centre, scale=spread, start=start, unit=unit)

    def _within_limits(self, y: Floats, array: pa.Array) -> Floats:
        if self.map is None or not y.size:
            return y
        low, high = self.map.limits
        # a code is the left end of its step; a value with a density must lie strictly inside
        outside = (y < low) | (y >= high) if self.counts_mass else (y <= low) | (y >= high)
        if outside.any():
            raise TableError(
                f"column {self.name!r} holds {int(outside.sum())} values outside of its range as fitted, the first is "
                f"{first_shown(array, outside)}; leave those rows out, or fit again and widen the bounds",
                f"--bounds {self.name}=LOW:HIGH",
            )
        ends = np.array([y.argmin(), y.argmax()])  # the map is increasing
        absurd = np.zeros(len(y), dtype=np.bool_)
        absurd[ends] = np.abs(self.map.forward(y[ends] + 0.5 * self.counts_mass)[0]) > ABSURD
        if absurd.any():
            raise TableError(
                f"column {self.name!r} holds {first_shown(array, absurd)}, absurdly far from what was fitted; remove "
                "such rows"
            )
        return y


def cannot_be(facts: Facts, told: type[Column]) -> TableError:
    """The refusal of a kind that the values cannot have."""
    if is_text(facts.type):
        held = some(facts.listed(), 3)
        return TableError(f"column {facts.name!r} cannot be {told.kind}: it holds text such as {held}")
    what = "true and false" if pa.types.is_boolean(facts.type) else "dates" if is_date(facts.type) else "numbers"
    return TableError(f"column {facts.name!r} holds {what}, so it cannot be {told.kind}")


def first_shown(array: pa.Array, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> str:
    """The first of the chosen values, as messages write it."""
    return shown(array.filter(pa.array(chosen))[:1])[0]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value.to_json() if hasattr(value, "to_json") else value


def middle(values: Floats) -> tuple[float, float]:
    """Median, and the half-width around it that holds half of the values; the standard deviation where that is 0."""
    centre = float(np.median(values))
    spread = float(np.median(np.abs(values - centre))) or float(values.std()) or 1.0
    return centre, spread
