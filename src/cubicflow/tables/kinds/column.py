"""The interface of all codecs of columns: values to numbers and back, and the part in the likelihood."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa

from cubicflow import saved
from cubicflow.saved import Range
from cubicflow.tables.arrow_types import (
    Floats,
    exact_cast,
    fits,
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
from cubicflow.tables.kinds import kinds
from cubicflow.tables.kinds.facts import Facts
from cubicflow.tables.maps import Map, Scaled
from cubicflow.tables.table_error import TableError
from cubicflow.tables.unit_scale import CodeCounts

if TYPE_CHECKING:
    from cubicflow.tables.kinds.records import ColumnKind

Role = Literal["model", "context", "weights", "constant", "dropped"]
Level = str | Annotated[int, Range(-(2**63), 2**64)] | float | bool
Bounds = tuple[float, float]

ABSURD = 1e12  # standard deviations; the square of much larger numbers overflows float32


class Evidence(NamedTuple):
    """Input of :meth:`Column.settle`: facts of all rows, a sample of training rows, and the user's options."""

    facts: Facts
    sample: pa.Table
    kind_was_requested: bool  # whether the user named the kind
    transform: str | None
    bounds: Bounds | None


@dataclass(frozen=True)
class Column(ABC):
    """A column of a table. Its subclasses are codecs: ways to turn values into numbers and back. A kind of column is a
    name for a codec with some properties (:mod:`cubicflow.tables.kinds.records`).

    The life of a column:

    1. A kind makes the column from the facts of one pass over the table. :meth:`settle` adds the properties that depend
       on a sample of rows. :meth:`learn` adds the map, from the counts of the training rows.
    2. :meth:`encode` turns values into numbers y: a code for each step or level, or the value itself. :meth:`decode`
       turns y back into values. ``map`` takes y (code + u for a code, with noise u in (0, 1)) to the real line.
    3. The likelihood counts the probability of a code if ``counts_mass`` is true, and a density per unit otherwise;
       :meth:`describe` states which.
    4. :meth:`to_json` writes the column to a run folder. :meth:`from_json` reads the column and checks every field.

    Attributes:
        type: the name of the arrow type.
        role: ``"model"``, ``"context"``, ``"weights"``, ``"constant"`` or ``"dropped"``.
        map: the map from y to the flow's numbers, whose limits are hard limits; None for a column without a map.
        kind: the name of the kind.
        levels: the values of a list, in the order of the codes.
    """

    counts_mass: ClassVar[bool] = True
    is_list: ClassVar[bool] = False  # whether the values are a finite list instead of points on a line

    name: str
    type: str
    role: Role = "model"
    map: Map | None = None
    kind: str = field(default="", kw_only=True)
    levels: tuple[Level, ...] = field(default=(), kw_only=True)

    @property
    def about(self) -> ColumnKind:
        return kinds()[self.kind]

    @property
    def is_ordered(self) -> bool:
        """Whether the values have a natural order."""
        return not self.is_list or self.about.is_ordered

    @property
    def is_measured(self) -> bool:
        """Whether the values can have a transform and bounds."""
        return is_number(self.arrow_type) and not self.is_list and self.role not in ("constant", "dropped")

    @property
    def on_calendar(self) -> bool:
        return not self.is_list and is_date(self.arrow_type)

    @property
    def has_steps(self) -> bool:
        return self.counts_mass and not self.is_list

    @property
    def turn(self) -> Bounds | None:
        """The plain numbers of the two ends of a circle, which are the same point; None if the values lie on a line.
        All plain numbers lie below the second end."""
        return None

    @property
    def is_circle(self) -> bool:
        return self.turn is not None

    # --- inference ---

    def settle(self, seen: Evidence) -> tuple[Column, list[str]]:  # noqa: ARG002 - some codecs use it
        """Return the column with the properties that depend on a sample of training rows, and remarks for the user."""
        return self, []

    def learn(self, counts: CodeCounts, rows: int, bounds: Bounds | None) -> Self:  # noqa: ARG002
        """Return the column with a map fitted to the counts of the codes of ``rows`` training rows."""
        return self

    # --- values to numbers and back ---

    @abstractmethod
    def numbers(self, array: pa.Array, *, strict: bool = True) -> Floats:
        """Return y of values that :meth:`read` returned, without limits.

        Raises TableError for a value that the column cannot hold. If ``strict`` is false, the result may be inf
        instead.
        """

    def encode(self, array: pa.Array) -> Floats:
        """Return y for every value of an array without missing values.

        Raises:
            TableError: a value does not belong to the column, or lies beyond the limits of its map.
        """
        array = self.read(array)
        return self._within_limits(self.numbers(array), array)

    def encode_any(self, array: pa.Array) -> Floats:
        """Return y for every value of an array without missing values; inf for a value that does not belong to the
        column.

        Limits of the map are ignored.
        """
        if not len(array):
            return np.empty(0)
        try:
            return self.numbers(self.read(array), strict=False)
        except TableError:  # bisect until each invalid value is alone
            if len(array) == 1:
                return np.array([np.inf])
            half = len(array) // 2
            return np.concatenate([self.encode_any(array[:half]), self.encode_any(array[half:])])

    def unwrapped(self, array: pa.Array) -> Floats:
        """Return plain numbers that may be whole turns away from a circle, of values that :meth:`read` returned."""
        return self.numbers(array)

    @abstractmethod
    def decode(self, y: Floats) -> pa.Array:
        """Return values of the column's arrow type: for each y, the nearest value that a sample may take."""

    def rounded(self, y: Floats) -> Floats:
        """Return sampled numbers rounded to the decimals of written values."""
        return y

    def written(self, first: float, last: float) -> list[tuple[float, float, float, float]]:
        """Return the intervals of numbers that round to a value from ``first`` to ``last``.

        Each interval is its two ends, its first and its last value.
        """
        return [(first, last, first, last)]

    def unlimited(self, y: Floats) -> Floats:
        """Return the values of plain numbers, as numbers, without the limits of samples."""
        return y

    @property
    def code_range(self) -> tuple[float, float]:
        """The first and the last code that a sample may have."""
        return -math.inf, math.inf

    def read(self, array: pa.Array) -> pa.Array:
        """Return the array with text parsed as the column's type and dictionaries decoded."""
        if is_text(self.arrow_type):
            return plain_text(array)
        if not is_text(array.type):
            return array
        attempts = [pa.float64()] if is_number(self.arrow_type) else [self.arrow_type]
        if pa.types.is_integer(self.arrow_type):  # the text 3.0 is a whole number too
            attempts = [pa.int64(), pa.float64()]
        for type in attempts:
            try:
                return read_text(array, type)
            except pa.ArrowInvalid:
                pass
        wrong = next(text for text in array.to_pylist() if not fits(pa.array([text]), attempts[-1]))
        raise TableError(f"column {self.name!r} should hold {self.expected_values}, found {wrong!r}")

    def given(self, array: pa.Array) -> pa.Array:
        """Return values of a context column cast to the column's type.

        The values stay as they were read if the cast would lose one, such as 2.5 rooms in a column of whole numbers.
        """
        read = self.read(array)
        if is_text(self.arrow_type):
            return words_as(read, self.arrow_type)
        cast = exact_cast(read, self.arrow_type)
        return read if cast.null_count else cast

    @cached_property
    def arrow_type(self) -> pa.DataType:
        return type_of(self.type)

    @property
    def expected_values(self) -> str:
        """The values that the column expects, in words for messages."""
        return "known values"

    @property
    def decimals(self) -> int | None:
        """The number of decimals of values written as text; None for all decimals."""
        return None

    @property
    def exact_decimals(self) -> int:
        """The number of decimals of values with steps."""
        return 0

    def values(self, values: Sequence[Level]) -> pa.Array:
        """Return an arrow array of values stored in JSON, where dates are whole numbers. Text becomes plain strings."""
        type = self.arrow_type
        if is_text(type):
            return pa.array(values, type=pa.string())
        if is_date(type):
            return pa.array(values, type=pa.int32() if pa.types.is_date32(type) else pa.int64()).cast(type)
        if pa.types.is_decimal(type):
            return pa.array([f"{value:.{type.scale}f}" for value in values], type=pa.string()).cast(type)
        return pa.array(values, type=type)

    # --- likelihood ---

    @property
    def needed_map(self) -> Map:
        if self.map is None:
            raise TableError(f"column {self.name!r} has no map")
        return self.map

    def describe(self) -> str:
        """Return a phrase for the user: the role of the column in the likelihood, such as "weight of the row"."""
        if self.role == "context":
            return "given: the likelihood is conditional on it"
        return "weight of the row" if self.role == "weights" else self.likelihood_term

    @property
    @abstractmethod
    def likelihood_term(self) -> str:
        """A phrase for the user: the density or the probability by which a modelled column enters the likelihood."""

    # --- plots ---

    def axis_values(self, array: pa.Array) -> Floats:
        """Return the positions of values on the axis of a plot."""
        return floats(array)

    @property
    def axis_step(self) -> float | None:
        """The distance between neighbouring values on the axis; None for numbers without a step."""
        return None

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the values of a list, in the order of the codes."""
        return tuple(str(level) for level in self.levels)

    # --- JSON ---

    def to_json(self) -> dict[str, Any]:
        first = dict.fromkeys(("name", "kind", "type", "role"))
        fields = {**first, **asdict(self), "levels": list(self.levels) or None, "map": self.map and self.map.to_json()}
        return {key: value for key, value in fields.items() if value is not None}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Return the column that :meth:`to_json` wrote. Every field is checked, so encode and decode cannot fail later.

        Raises:
            TableError: the value is not a valid column of its kind.
        """
        try:
            column = saved.from_json(cls, value, exact=True)
            column.check()
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise TableError(f"column {str(value.get('name'))[:80]!r} of kind {value['kind']}: {error}") from None
        return column

    def check(self) -> None:
        """Raise ValueError if the fields read from JSON contradict each other."""
        if self.role not in self.about.roles:
            raise ValueError(f"has the role {self.role!r}; it should be {' or '.join(self.about.roles)}")
        if not self.about.accepts(self.arrow_type):
            raise ValueError(f"cannot have the type {self.type}")
        if bool(self.levels) != self.is_list:
            raise ValueError("a list needs levels, and other columns have none")
        if self.is_circle != self.about.is_circle:
            raise ValueError("a circle needs two ends, and a line has none")

    # --- limits ---

    def finite(self, array: pa.Array) -> Floats:
        """Return the values as float64. Raise TableError if a value is infinite."""
        values = floats(array)
        infinite = ~np.isfinite(values)
        if infinite.any():
            raise TableError(f"column {self.name!r} holds {int(infinite.sum())} infinite values; remove those rows")
        return values

    def _within_limits(self, y: Floats, array: pa.Array) -> Floats:
        if self.map is None or not y.size:
            return y
        low, high = self.map.limits
        # a code is the left end of its step, so it may equal `low`; a value with a density must lie strictly inside
        outside = (y < low) | (y >= high) if self.counts_mass else (y <= low) | (y >= high)
        if outside.any():
            raise TableError(
                f"column {self.name!r} holds {int(outside.sum())} values outside of its fitted range, the first is "
                f"{first_shown(array, outside)}; leave those rows out, or fit again and widen the bounds",
                bounds={self.name: ("LOW", "HIGH")},
            )
        ends = np.array([y.argmin(), y.argmax()])  # the map is increasing, so the ends are the most extreme
        absurd = np.zeros(len(y), dtype=np.bool_)
        absurd[ends] = np.abs(self.map.forward(y[ends] + 0.5 * self.counts_mass)[0]) > ABSURD
        if absurd.any():
            raise TableError(
                f"column {self.name!r} holds {first_shown(array, absurd)}, absurdly far from the fitted values; remove "
                "such rows"
            )
        return y


def first_shown(array: pa.Array, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> str:
    """Return the first chosen value as text for messages. ``chosen`` is a boolean mask."""
    return shown(array.filter(pa.array(chosen))[:1])[0]


def requested_map(
    transform: str, column: Column, smallest: float, sample: Floats, *, start: float = 0.0, unit: float = 1.0
) -> Scaled:
    """Return the transform that the user requested, applied to ``start`` + ``unit`` * y."""
    if transform == "log":
        # A column with masses may hold 0: noise moves 0 into (0, 1), where the logarithm is finite. Without noise, 0
        # has no logarithm.
        if smallest < 0 or (smallest == 0 and not column.counts_mass):
            raise TableError(
                f"column {column.name!r} holds {smallest:g}, which has no logarithm; give bounds with a lower end "
                "below all values, or use the transform asinh",
                transforms={column.name: "asinh"},
            )
        return Scaled("log", start=start, unit=unit)
    centre, spread = median_and_spread(sample)
    return Scaled("asinh", centre=centre, scale=spread, start=start, unit=unit)


def median_and_spread(values: Floats) -> tuple[float, float]:
    """Return the median and a spread: the median absolute deviation, or if that is 0 the standard deviation, or 1."""
    centre = float(np.median(values))
    spread = float(np.median(np.abs(values - centre))) or float(values.std()) or 1.0
    return centre, spread
