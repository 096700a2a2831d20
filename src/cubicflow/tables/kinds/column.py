"""What every kind of column answers: what it is, how its values become numbers, and what the likelihood counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import (
    Floats,
    exact_cast,
    floats,
    is_date,
    is_number,
    is_text,
    plain_text,
    read_text,
    shown,
    type_of,
    words_as,
)
from cubicflow.tables.maps import CodeCounts, Map
from cubicflow.tables.table_error import TableError, some

if TYPE_CHECKING:
    from cubicflow.tables.options import TableOptions
    from cubicflow.tables.survey import Facts

Role = Literal["model", "context", "weights", "constant", "dropped"]
Level = str | int | float | bool
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Column(ABC):
    """A column of a table. Each kind of column is a subclass.

    In the order in which a column is used:

    1. :meth:`infer` makes the column of what a pass over the table showed, :meth:`settle` adds what a sample of training
       rows decides, and :meth:`learn` the map that their counts make.
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
    can_be_told: ClassVar[bool] = True  # whether the user may ask for this kind by its name
    counts_mass: ClassVar[bool] = True
    is_list: ClassVar[bool] = False  # of values, rather than places on a line
    is_ordered: ClassVar[bool] = True  # by the values themselves
    is_measured: ClassVar[bool] = False  # in numbers that can be transformed and bounded
    is_date: ClassVar[bool] = False

    name: str
    type: str
    role: Role = "model"
    map: Map | None = None

    # --- what it is ---

    @classmethod
    @abstractmethod
    def infer(cls, facts: Facts, told: type[Column] | None, role: Role) -> Column | None:
        """The column, if it is of this kind; None if it is for another kind to take.

        ``told`` is the kind that the user asked for. Raises TableError where the values cannot be of that kind.
        """

    def settle(
        self,
        facts: Facts,  # noqa: ARG002 - for kinds that need it
        sample: pa.Table,  # noqa: ARG002
        options: TableOptions,  # noqa: ARG002
        others: Sequence[Column],  # noqa: ARG002
    ) -> tuple[Self, list[str]]:
        """The column with what a sample of training rows decides, and remarks for the user. ``others`` are ordered."""
        return self, []

    def learn(self, counts: CodeCounts, rows: int, bounds: Bounds | None) -> Self:  # noqa: ARG002
        """The column with the map that the codes of ``rows`` training rows make."""
        return self

    # --- values to numbers and back ---

    @abstractmethod
    def encode(self, array: pa.Array) -> Floats:
        """y of every value of an array without gaps. Refuses a value that does not belong."""

    @abstractmethod
    def decode(self, y: Floats) -> pa.Array:
        """Values of the column's own type, each the one nearest to y that a sample may be."""

    def read(self, array: pa.Array) -> pa.Array:
        """Text read as the column's type, and dictionaries spelled out."""
        if is_text(self.arrow_type):
            return plain_text(array)
        if not is_text(array.type):
            return array
        attempts = [self.text_type]
        if pa.types.is_integer(self.text_type):  # 3.0 is a whole number too
            attempts.append(pa.float64())
        for type in attempts:
            try:
                return read_text(array, type)
            except pa.ArrowInvalid:
                pass
        wrong = next(text for text in array.to_pylist() if not _reads(text, attempts[-1]))
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
    def text_type(self) -> pa.DataType:
        """What text is read as."""
        return pa.float64() if is_number(self.arrow_type) else self.arrow_type

    @property
    def words(self) -> str:
        """What the column holds, for messages."""
        return "known values"

    @property
    def written_decimals(self) -> int | None:
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
    def middle(self) -> float:
        """From y to the middle of its step."""
        return 0.5 if self.counts_mass else 0.0

    @property
    def context_width(self) -> int:
        """The number of context features."""
        return 1

    def context(self, array: pa.Array) -> Floats:
        """Context features (N, context_width): the middle of the value's step on the flow's own scale."""
        return self.needed_map.forward(self.encode(array) + self.middle)[0][:, None]

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
        found = {"name": self.name, "kind": self.kind, "type": self.type, "role": self.role, **self.own_json()}
        return found if self.map is None else {**found, "map": self.map.to_json()}

    def own_json(self) -> dict[str, Any]:
        """What this kind has beside the common attributes."""
        return {}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Column:
        """Trusts nothing: what comes back can be encoded and decoded without failing."""
        if unknown := sorted(value.keys() - {field.name for field in fields(cls)} - {"kind"}):
            raise TableError(f"a column of kind {cls.kind} has no {unknown[0]!r}")
        name, type, role = (value.get(key) for key in ("name", "type", "role"))
        if not isinstance(name, str) or not isinstance(type, str):
            raise TableError("a column needs a name and a type")
        if role not in get_args(Role) or role not in cls.roles:
            raise TableError(f"column {name!r} is {cls.kind} and has the role {role!r}, which is none")
        map = Map.from_json(value["map"]) if "map" in value else None
        column = cls(name, type, role, map, **cls.own_from_json(name, value))
        if not column.holds(column.arrow_type):
            raise TableError(f"column {name!r} is {cls.kind} but its type is {type}")
        if map is None and column.needs_map:
            raise TableError(f"column {name!r} has no map")
        try:
            column.check()
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise TableError(f"the values of column {name!r} are not {type}: {error}") from None
        return column

    @classmethod
    def own_from_json(cls, name: str, value: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """The inverse of :meth:`own_json`, as arguments of the constructor."""
        return {}

    @classmethod
    def holds(cls, type: pa.DataType) -> bool:  # noqa: ARG003
        """Whether values of the arrow type can be of this kind."""
        return True

    @property
    def needs_map(self) -> bool:
        return True

    def check(self) -> None:
        """Raise a ValueError where what was read from JSON does not fit together."""


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


def _reads(text: str, type: pa.DataType) -> bool:
    try:
        read_text(pa.array([text]), type)
    except pa.ArrowInvalid:
        return False
    return True
