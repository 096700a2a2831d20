"""Parsing of option values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

SEVERAL = re.compile(r"([^=,]+=[^=,]+)(,\s*[^=,]+=[^=,]+)+")  # a=1,b=2


def given(**options: Any) -> dict[str, Any]:
    """Return the options that are not None.

    >>> given(steps=100, seed=None)
    {'steps': 100}
    """
    return {name: value for name, value in options.items() if value is not None}


def pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Parse ``col=value`` texts into a dictionary. The last = sign separates the name and the value.

    >>> pairs("--type", ["pay=real", "a=b=integer"])
    {'pay': 'real', 'a=b': 'integer'}
    """
    found: dict[str, str] = {}
    for text in texts:
        column, equals, value = text.rpartition("=")
        if SEVERAL.fullmatch(text):
            raise _one_each(option, text.split(","))
        if not equals or not column or not value:
            raise ValueError(f"{option} takes column=value, got {text!r}")
        if column in found:
            raise ValueError(f"{option} is given twice for column {column!r}; give it once")
        found[column] = value
    return found


def conditions(option: str, texts: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the texts of conditions; raise ValueError if a text has conditions on several columns.

    >>> conditions("--given", ["a=1", "b in x,y"], ["a", "b"])
    ['a=1', 'b in x,y']
    """
    from cubicflow.tables.query import second_condition

    for text in texts:
        if (second := second_condition(text, columns)) is not None:
            raise _one_each(option, [text[: -len(second)].rstrip(", "), second])
    return list(texts)


def _one_each(option: str, texts: Sequence[str]) -> ValueError:
    separate = " ".join(f"{option} {text.strip()!r}" for text in texts)
    return ValueError(f"{option} takes one column; a comma does not separate columns; write {separate}")


def ranges(option: str, texts: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Parse ``col=low:high`` texts. One of the two ends may be empty.

    >>> ranges("--bounds", ["share=0:1", "price=0:"])
    {'share': (0.0, 1.0), 'price': (0.0, inf)}
    """
    found = {}
    for column, text in pairs(option, texts).items():
        low, colon, high = text.partition(":")
        try:
            found[column] = (float(low) if low else -math.inf, float(high) if high else math.inf)
        except ValueError:
            colon = ""
        if not colon or not (low or high):
            raise ValueError(
                f"{option} takes column=low:high, such as share=0:1, or price=0: for one end; got {text!r}"
            )
    return found


def names(texts: Iterable[str]) -> tuple[str, ...]:
    """Parse comma-separated column names."""
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())
