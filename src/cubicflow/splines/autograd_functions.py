"""What every ``autograd.Function`` here needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


def with_signature(forward: F) -> F:
    """Find the signature of a Function's ``forward`` once: ``apply()`` asks for it at every call, and finding it takes
    longer than a small kernel runs."""
    forward.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    return forward
