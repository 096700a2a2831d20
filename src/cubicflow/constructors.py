"""Helpers for constructors of modules: argument checks, and the dictionary that ``config()`` returns."""

from __future__ import annotations

from typing import Any


def positive(name: str, value: int) -> int:
    """Return ``value``; raise ValueError unless it is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return value


def arguments(module: object, *names: str) -> dict[str, Any]:
    """Return constructor arguments by name. The module keeps each argument as an attribute of the same name."""
    return {name: getattr(module, name) for name in names}
