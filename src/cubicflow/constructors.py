"""What constructors of modules share: a check of their arguments, and the arguments as ``config()`` returns them."""

from __future__ import annotations

from typing import Any


def positive(name: str, value: int) -> int:
    """``value`` if it is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return value


def arguments(module: object, *names: str) -> dict[str, Any]:
    """The arguments of a module's constructor, which it keeps as attributes of the same names."""
    return {name: getattr(module, name) for name in names}
