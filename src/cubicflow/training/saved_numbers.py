"""Schemas of the plain values in a checkpoint and in a finished run, to check values that come from files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

LARGEST = 2**53  # a float holds every integer up to this one
RAW, AVERAGED = "raw", "averaged"
STOPPED = ("steps", "time_budget", "patience")


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _seconds(value: Any) -> bool:
    return _number(value) and value >= 0


def _loss(value: Any) -> bool:
    return value is None or (_number(value) and abs(value) <= 1e300)


Schema = Mapping[str, Callable[[Any], bool]]
CHECKPOINT: Schema = {
    "step": _count,
    "elapsed": _seconds,
    "best_step": _count,
    "best_weights": (RAW, AVERAGED).__contains__,
    "waited": _count,
    "last_read": _count,
    "best_loss": _loss,
}
RESULT: Schema = {
    "steps": _count,
    "stopped": STOPPED.__contains__,
    "validation_loss": _loss,
    "best_step": _count,
    "weights": (RAW, AVERAGED).__contains__,
    "seconds": _seconds,
}


def schema_violation(schema: Schema, values: Any) -> str | None:
    """Return a phrase that says how ``values`` violate the schema, or None. Further values are allowed.

    >>> schema_violation(RESULT, {"steps": -1})
    'lacks stopped, validation_loss, best_step, weights, seconds'
    >>> schema_violation({"step": _count}, {"step": "many"})
    "has the invalid value 'many' for step"
    """
    if not isinstance(values, dict):
        return f"is a {type(values).__name__}, not a set of named values"
    if missing := [name for name in schema if name not in values]:
        return f"lacks {', '.join(missing)}"
    for name, allows in schema.items():
        value = values[name]
        try:
            allowed = allows(value)
        except (TypeError, OverflowError):  # a list is not hashable; a huge integer does not convert to float
            allowed = False
        if not allowed:
            return f"has the invalid value {str(value)[:40]!r} for {name}"
    return None
