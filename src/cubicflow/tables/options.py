"""What the user may say about a table's columns, beyond what is found in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations

from cubicflow.tables.kinds import NAMES
from cubicflow.tables.table_error import TableError, some

TRANSFORMS = ("log", "asinh")


class Missing(StrEnum):
    """What to do with rows that lack a value: refuse the table, or leave those rows out.

    >>> Missing("drop")
    <Missing.DROP: 'drop'>
    """

    ERROR = "error"
    DROP = "drop"

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise TableError(f"missing should be {' or '.join(cls)}, got {value!r}")


@dataclass(frozen=True)
class TableOptions:
    """What is said about columns, by their names.

    Attributes:
        kinds: column -> real, stepped, integer, datetime, categorical, boolean or constant, where the guess is wrong.
        transforms: column -> log or asinh.
        bounds: column -> (low, high), hard limits; -inf or inf for none.
        context: columns to condition on.
        weights: the column of row weights.
        drop: columns to leave out.
        missing: what to do with rows that lack a value, a :class:`Missing` or its name.

    >>> TableOptions(kinds={"zip": "categorical"}, bounds={"share": (0, 1)}, missing="drop").missing
    <Missing.DROP: 'drop'>
    """

    kinds: Mapping[str, str] = field(default_factory=dict)
    transforms: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    context: tuple[str, ...] = ()
    weights: str | None = None
    drop: tuple[str, ...] = ()
    missing: Missing | str = Missing.ERROR

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing", Missing(self.missing))
        for column, kind in self.kinds.items():
            if kind not in NAMES:
                raise TableError(f"the type of {column!r} should be one of {', '.join(NAMES)}, got {kind!r}")
        for column, transform in self.transforms.items():
            if transform not in TRANSFORMS:
                raise TableError(f"the transform of {column!r} should be {' or '.join(TRANSFORMS)}, got {transform!r}")
        for column, (low, high) in self.bounds.items():
            if not low < high:
                raise TableError(f"the bounds of {column!r} should be low:high with low < high, got {low:g}:{high:g}")
        if both := sorted(self.transforms.keys() & self.bounds.keys()):
            raise TableError(f"{some(both)} has a transform and bounds; bounds bring their own transform, give one")
        for (first, ones), (second, others) in combinations(self._parts.items(), 2):
            if clash := sorted(set(ones) & set(others)):
                raise TableError(f"{some(clash)} is named in both {first} and {second}; a column has one part to play")

    @property
    def _parts(self) -> dict[str, tuple[str, ...]]:
        weights = () if self.weights is None else (self.weights,)
        return {"drop": self.drop, "context": self.context, "weights": weights}

    @property
    def named(self) -> set[str]:
        """Every column that an option names."""
        return {*self.kinds, *self.transforms, *self.bounds}.union(*self._parts.values())

    def check_names(self, names: Iterable[str]) -> None:
        """Every column named in an option is in the table."""
        known = list(names)
        unknown = sorted(self.named - set(known))
        if unknown:
            raise TableError(f"there is no column {some(unknown)}; the columns are {some(known, 20)}")
