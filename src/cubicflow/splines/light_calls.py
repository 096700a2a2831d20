"""What makes calls light: for ``autograd.Function``, and for functions that compiled code asks for a constant."""

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


def constant_when_compiled(function: F) -> F:
    """``torch.compiler.assume_constant_result``, which imports the whole compiler in order to set this mark."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
