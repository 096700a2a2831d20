"""What the plain values of a checkpoint and of a finished run may be. They come from files, and become attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

LARGEST = 2**53  # a float holds every whole number up to it
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


def why_not(schema: Schema, values: Any) -> str | None:
    """What is wrong with plain values, or None. ``values`` may hold more than the schema asks for.

    >>> why_not(RESULT, {"steps": -1})
    'lacks stopped, validation_loss, best_step, weights, seconds'
    >>> why_not({"step": _count}, {"step": "many"})
    "says step is 'many'"
    """
    if not isinstance(values, dict):
        return f"is a {type(values).__name__}, not a set of named values"
    if missing := [name for name in schema if name not in values]:
        return f"lacks {', '.join(missing)}"
    for name, allows in schema.items():
        value = values[name]
        try:
            allowed = allows(value)
        except (TypeError, OverflowError):  # a list cannot be looked up, a huge integer is no float
            allowed = False
        if not allowed:
            return f"says {name} is {str(value)[:40]!r}"
    return None
