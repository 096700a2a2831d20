"""Questions of the page, which are JSON objects or the parameters of an address: their values, and why one is refused.

The messages of errors are shown as one line, without the folders of this machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cubicflow.advice import message_of
from cubicflow.tables import TableError

Question = Mapping[str, Any]
MOST_SEED = 1 << 31
LONGEST = 1000  # characters of a message
PATHS = re.compile(r"(?<![\w.:/])(?:[A-Za-z]:\\|/)[^\s'\",;]*[/\\]([^\s'\",;/\\]*)")


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


# --- messages ---


class RefusedError(ValueError):
    """An error whose message is for the user: the question cannot be answered."""


def one_line(error: BaseException, *known: Path) -> str:
    """Return the message of an error as one line, without paths."""
    return without_paths(" ".join(message_of(error).split()) or type(error).__name__, *known)[:LONGEST]


def without_paths(text: str, *known: Path) -> str:
    """Replace paths in a message by file names. Only the paths in ``known`` may contain spaces.

    >>> without_paths("/home/me/run/config.json: not valid JSON; see '/tmp/x y'")
    "config.json: not valid JSON; see 'x y'"
    >>> without_paths("/my own/runs/first/config.json: damaged", Path("/my own/runs/first"))
    'first/config.json: damaged'
    """
    for path in known:
        for text_of_path in {str(path), str(path.absolute()), str(path.resolve())}:
            if text_of_path not in (".", "/"):
                text = text.replace(text_of_path, path.resolve().name)
    return PATHS.sub(r"\1", text)
