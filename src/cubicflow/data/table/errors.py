"""What is wrong with a table, in one message that carries its answer."""

from __future__ import annotations

from collections.abc import Sequence


class TableError(ValueError):
    """A table, or what was asked of it, cannot be used: what was found, where, and what to do."""


def some(values: Sequence[object], most: int = 5) -> str:
    """A few of the values, and how many more there are: ``'a', 'b' and 7 more``."""
    shown = ", ".join(repr(value) for value in values[:most])
    return shown if len(values) <= most else f"{shown} and {len(values) - most} more"
