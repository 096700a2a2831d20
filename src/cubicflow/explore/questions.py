"""Questions of the page, which are JSON objects or the parameters of an address: reading their values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cubicflow.tables import TableError

Question = Mapping[str, Any]
MOST_SEED = 1 << 31


def conditions_of(question: Question) -> dict[str, object]:
    """Return the conditions of a question as :mod:`cubicflow.tables.query.conditions` reads them.

    In the parameters of an address, the conditions are the text of the JSON object.

    >>> conditions_of({"conditions": {"cut": {"in": ["Ideal"]}, "price": {"from": "10", "to": None}}})
    {'cut': ['Ideal'], 'price': ('10', None)}
    >>> conditions_of({"conditions": '{"age": {"missing": true}, "carat": {"is": "1.5"}}'})
    {'age': None, 'carat': '1.5'}
    """
    value = question.get("conditions")
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):  # any other text is refused below
            value = json.loads(value)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TableError(f"conditions must be a JSON object with column names as keys, got {str(value)[:40]!r}")
    found: dict[str, object] = {}
    for name, condition in value.items():
        match condition:
            case {"is": str(text)}:
                found[name] = text
            case {"in": [*words]} if words and all(isinstance(word, str) for word in words):
                found[name] = list(words)
            case {"from": str() | None as low, "to": str() | None as high}:
                found[name] = (low or None, high or None)
            case {"missing": True}:
                found[name] = None
            case _:
                raise TableError(
                    f"the condition on column {name!r} should have the key 'is', 'in' or 'missing', or the keys "
                    "'from' and 'to'"
                )
    return found


def whole(question: Question, key: str, most: int) -> int:
    """Return a whole number of a question. Raises TableError unless it is 0 to ``most``."""
    value: Any = question.get(key)
    try:
        found = None if isinstance(value, float) and not value.is_integer() else int(value)
    except (TypeError, ValueError):
        found = None
    if found is None:
        raise TableError(f"{key} must be a whole number, got {str(value)[:40]!r}")
    if not 0 <= found <= most:
        raise TableError(f"{key} must be 0 to {most:,}, got {found}")
    return found


def temperature_of(question: Question) -> float:
    """Return the temperature of a question. Raises TableError unless it is a number above 0 and at most 4."""
    value = question.get("temperature")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 4:
        raise TableError(f"the temperature must be a number above 0 and at most 4, got {str(value)[:40]!r}")
    return float(value)
