"""A check of arguments that count something."""

from __future__ import annotations

from typing import Any


def whole_number(name: str, value: Any, least: int) -> int:
    """Return the argument as an int. A float such as 1e6 is accepted.

    Raises ValueError for any other value, and for a number below ``least``.

    >>> whole_number("evaluations", 1e6, 0)
    1000000
    """
    try:
        found = int(value)
        whole = found == value and not isinstance(value, bool)  # "5" != 5
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole or found < least:
        raise ValueError(f"{name} must be a whole number, {least} or more, got {value!r}")
    return found
