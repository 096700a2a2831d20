"""One column of a schema: what it holds, the part it plays, and how its values become numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import pyarrow as pa

from cubicflow.tables.arrow_types import is_date, is_number, is_text, shown, type_of
from cubicflow.tables.errors import TableError
from cubicflow.tables.grid import Grid
from cubicflow.tables.maps import Histogram, Map

# "levels" are numbers from a short list without a common step
Kind = Literal["real", "stepped", "integer", "boolean", "categorical", "levels", "constant", "datetime", "dropped"]
Role = Literal["model", "context", "weights", "constant", "dropped"]
Level = str | int | float | bool

GRIDDED: tuple[Kind, ...] = ("stepped", "integer", "datetime")
LEVELLED: tuple[Kind, ...] = ("boolean", "categorical", "levels")
MOST_JSON_LEVELS = 1 << 16


@dataclass(frozen=True)
class Column:
    """A column of the fitted table.

    Attributes:
        type: the name of its arrow type.
        grid: of a stepped, integer or date-time column.
        levels: of a boolean, categorical or levelled column, in the order of their codes.
        decimals: of a real column, the digits its samples are rounded to; None for all.
        value: of a constant.
        map: from numbers to the flow's; None for constants, weights, dropped columns and categorical context.
    """

    name: str
    kind: Kind
    type: str
    role: Role = "model"
    grid: Grid | None = None
    levels: tuple[Level, ...] = ()
    decimals: int | None = None
    value: Level | None = None
    map: Map | None = None

    @cached_property
    def arrow_type(self) -> pa.DataType:
        return type_of(self.type)

    @property
    def counts_mass(self) -> bool:
        """Whether a likelihood counts this column's probability per step, rather than a density."""
        return self.kind in GRIDDED or self.kind in LEVELLED

    @cached_property
    def value_set(self) -> pa.Array:
        """The levels as an arrow array, text as plain strings."""
        return self.decode_values(self.levels)

    def decode_values(self, values: Sequence[Level]) -> pa.Array:
        """Values as JSON keeps them (dates as whole numbers) as an arrow array, text as plain strings."""
        type = self.arrow_type
        if is_text(type):
            return pa.array(values, type=pa.string())
        if is_date(type):
            return pa.array(values, type=pa.int32() if pa.types.is_date32(type) else pa.int64()).cast(type)
        if pa.types.is_decimal(type):
            return pa.array([f"{value:.{type.scale}f}" for value in values], type=pa.string()).cast(type)
        return pa.array(values, type=type)

    @property
    def shown_value(self) -> str:
        """The value of a constant, as messages write it."""
        return "nothing" if self.value is None else shown(self.decode_values([self.value]))[0]

    def statement(self) -> str:
        """What the likelihood counts here, in words."""
        if self.role == "context":
            return "given: the likelihood is conditional on it"
        if self.role == "weights":
            return "weight of the row"
        if self.role == "dropped":
            return "left out"
        if self.kind == "constant":
            return f"always {self.shown_value}: probability 1"
        if self.kind in LEVELLED:
            return f"mass of each of {len(self.levels)} values"
        if self.grid is not None:
            if self.kind == "datetime":
                return f"mass per step of {duration(self.arrow_type, self.grid.step)}"
            return f"mass per step of {self.grid.width:.12g}"
        return "density per unit"

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "kind": self.kind, "type": self.type, "role": self.role}
        if self.grid is not None:
            found["grid"] = self.grid.to_json()
        if self.levels:
            found["levels"] = list(self.levels)
        if self.decimals is not None:
            found["decimals"] = self.decimals
        if self.value is not None:
            found["value"] = self.value
        if self.map is not None:
            found["map"] = self.map.to_json()
        return found

    @classmethod
    def from_json(cls, value: Any) -> Column:
        """Trusts nothing: what comes back can be encoded and decoded without failing."""
        if not isinstance(value, dict):
            raise TableError(f"a column should be an object, got {str(value)[:80]}")
        unknown = sorted(value.keys() - {"name", "kind", "type", "role", "grid", "levels", "decimals", "value", "map"})
        if unknown:
            raise TableError(f"a column has no {unknown[0]!r}")
        name, kind, type, role = (value.get(key) for key in ("name", "kind", "type", "role"))
        if not isinstance(name, str) or not isinstance(type, str):
            raise TableError("a column needs a name and a type")
        if kind is None or role is None or kind not in get_args(Kind) or role not in get_args(Role):
            raise TableError(f"column {name!r} has kind {kind!r} and role {role!r}, which are none")
        levels, decimals, constant = value.get("levels", []), value.get("decimals"), value.get("value")
        if not isinstance(levels, list) or not all(isinstance(level, str | int | float) for level in levels):
            raise TableError(f"the levels of column {name!r} should be a list of values")
        if len(levels) > MOST_JSON_LEVELS:
            raise TableError(f"column {name!r} has {len(levels)} levels, more than any table's")
        if decimals is not None and (not isinstance(decimals, int) or not 0 <= decimals <= 30):
            raise TableError(f"column {name!r} has {decimals!r} decimals")
        if constant is not None and not isinstance(constant, str | int | float):
            raise TableError(f"the constant column {name!r} is {str(constant)[:80]}")
        column = cls(
            name,
            kind,
            type,
            role,
            Grid.from_json(value["grid"]) if "grid" in value else None,
            tuple(levels),
            decimals,
            constant,
            Map.from_json(value["map"]) if "map" in value else None,
        )
        column._check()
        return column

    def _check(self) -> None:
        type = self.arrow_type
        fitting = {
            "datetime": is_date(type),
            "real": is_number(type),
            "stepped": is_number(type),
            "integer": is_number(type),
        }.get(self.kind, True)
        if not fitting:
            raise TableError(f"column {self.name!r} is {self.kind} but its type is {self.type}")
        if (self.kind in GRIDDED) != (self.grid is not None) and self.role in ("model", "context"):
            raise TableError(f"column {self.name!r} is {self.kind} and its grid is {self.grid}")
        if (self.kind in LEVELLED) != bool(self.levels) and self.role in ("model", "context"):
            raise TableError(f"column {self.name!r} is {self.kind} and has {len(self.levels)} levels")
        if self.role == "model" and self.map is None:
            raise TableError(f"column {self.name!r} has no map")
        if self.role == "context" and self.kind not in LEVELLED and self.map is None:
            raise TableError(f"the context column {self.name!r} has no map")
        if self.kind in LEVELLED and self.map is not None:
            edges = self.map.edges if isinstance(self.map, Histogram) else ()
            if len(edges) != len(self.levels) + 1 or edges[0] != 0:
                raise TableError(f"the map of column {self.name!r} does not fit its {len(self.levels)} levels")
        if len(set(self.levels)) < len(self.levels):
            raise TableError(f"the levels of column {self.name!r} are not distinct")
        if (self.kind == "constant") != (self.value is not None):
            raise TableError(f"column {self.name!r} is {self.kind} and its value is {self.value!r}")
        try:
            self.decode_values(self.levels)
            self.decode_values([] if self.value is None else [self.value])
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise TableError(f"the values of column {self.name!r} are not {self.type}: {error}") from None


def duration(type: pa.DataType, step: int) -> str:
    """A step of a date-time column, in words."""
    unit = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    seconds = step * (86400.0 if pa.types.is_date32(type) else 1e-3 if pa.types.is_date64(type) else unit[type.unit])
    for name, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= length and seconds % length == 0:
            count = int(seconds // length)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return f"{seconds:g} seconds"
