"""Checks of arguments, and the dictionary of constructor arguments that ``config()`` returns."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any


def positive(name: str, value: int) -> int:
    """Return ``value``; raise ValueError unless it is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return value


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


def permutation(name: str, order: Iterable[int], size: int) -> list[int]:
    """Return ``order`` as a list; raise ValueError unless it holds every number from 0 to ``size`` - 1 once."""
    try:
        numbers = [index(number) for number in order]
    except TypeError:  # order is no sequence, or some of its elements are no integers
        numbers = []
    if sorted(numbers) != list(range(size)):
        raise ValueError(f"{name} must hold every number from 0 to {size - 1} once, got {order}")
    return numbers


def arguments(module: object, *names: str) -> dict[str, Any]:
    """Return constructor arguments by name. The module keeps each argument as an attribute of the same name."""
    return {name: getattr(module, name) for name in names}
