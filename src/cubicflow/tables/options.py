"""What the user may say about a table's columns, beyond what is found in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cubicflow.tables.errors import TableError, some

KINDS = ("real", "stepped", "integer", "boolean", "categorical", "constant", "datetime")
TRANSFORMS = ("log", "asinh")
Missing = Literal["error", "drop"]


@dataclass(frozen=True)
class TableOptions:
    """Overrides, by column name.

    Attributes:
        kinds: column -> real, stepped, integer, boolean, categorical, constant or datetime.
        transforms: column -> log or asinh.
        bounds: column -> (low, high), hard limits; -inf or inf for none.
        context: columns to condition on.
        weights: the column of row weights.
        drop: columns to leave out.
        missing: what to do with rows that lack a value: ``"error"`` or ``"drop"``.
    """

    kinds: Mapping[str, str] = field(default_factory=dict)
    transforms: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    context: tuple[str, ...] = ()
    weights: str | None = None
    drop: tuple[str, ...] = ()
    missing: Missing = "error"

    def __post_init__(self) -> None:
        for column, kind in self.kinds.items():
            if kind not in KINDS:
                raise TableError(f"the type of {column!r} should be one of {', '.join(KINDS)}, got {kind!r}")
        for column, transform in self.transforms.items():
            if transform not in TRANSFORMS:
                raise TableError(f"the transform of {column!r} should be {' or '.join(TRANSFORMS)}, got {transform!r}")
        for column, (low, high) in self.bounds.items():
            if not low < high:
                raise TableError(f"the bounds of {column!r} should be low:high with low < high, got {low:g}:{high:g}")
        if self.missing not in ("error", "drop"):
            raise TableError(f"missing should be 'error' or 'drop', got {self.missing!r}")
        both = sorted(self.transforms.keys() & self.bounds.keys())
        if both:
            raise TableError(f"{some(both)} has a transform and bounds; bounds bring their own transform, give one")
        weights = set() if self.weights is None else {self.weights}
        elsewhere = {"--drop": set(self.drop), "--context": set(self.context), "--weights": weights}
        for first, second in (("--drop", "--context"), ("--drop", "--weights"), ("--context", "--weights")):
            clash = sorted(elsewhere[first] & elsewhere[second])
            if clash:
                raise TableError(f"{some(clash)} is named in both {first} and {second}; a column has one part to play")

    @property
    def named(self) -> set[str]:
        """Every column that an option names."""
        weights = () if self.weights is None else (self.weights,)
        return {*self.kinds, *self.transforms, *self.bounds, *self.context, *self.drop, *weights}

    def check_names(self, names: Iterable[str]) -> None:
        """Every column named in an option is in the table."""
        known = list(names)
        unknown = sorted(self.named - set(known))
        if unknown:
            raise TableError(f"there is no column {some(unknown)}; the columns are {some(known, 20)}")


def pairs(option: str, texts: Iterable[str], columns: Iterable[str] = ()) -> dict[str, str]:
    """``col=value`` texts as a dictionary. After one of ``columns`` the value may hold = as well, else the name may.

    >>> pairs("--given", ["pay=<=50", "a=b=3"], ["pay"])
    {'pay': '<=50', 'a=b': '3'}
    """
    found: dict[str, str] = {}
    shortest_first = sorted(columns, key=len)
    for text in texts:
        known = next((name for name in shortest_first if text.startswith(f"{name}=")), None)
        column, equals, value = text.rpartition("=") if known is None else (known, "=", text[len(known) + 1 :])
        if not equals or not column or not value:
            raise TableError(f"{option} takes column=value, got {text!r}")
        if column in found:
            raise TableError(f"{option} is given twice for column {column!r}")
        found[column] = value
    return found


def ranges(option: str, texts: Iterable[str]) -> dict[str, tuple[float, float]]:
    """``col=low:high`` texts; either end may be left empty."""
    found = {}
    for column, text in pairs(option, texts).items():
        low, colon, high = text.partition(":")
        try:
            found[column] = (float(low) if low else -math.inf, float(high) if high else math.inf)
        except ValueError:
            colon = ""
        if not colon or not (low or high):
            raise TableError(f"{option} takes column=low:high, such as share=0:1 or price=0: for one end, got {text!r}")
    return found


def names(texts: Iterable[str]) -> tuple[str, ...]:
    """Comma-separated column names."""
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


def missing_policy(text: str | None) -> Missing | None:
    """``--missing`` as it was typed; None where it was not."""
    if text is not None and text not in ("error", "drop"):
        raise TableError(f"--missing should be error or drop, got {text!r}")
    return text  # type: ignore[return-value] # just checked
