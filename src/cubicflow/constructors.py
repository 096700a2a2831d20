"""Helpers for constructors of modules: argument checks, and the dictionary that ``config()`` returns."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any


def positive(name: str, value: int) -> int:
    """Return ``value``; raise ValueError unless it is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return value


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
