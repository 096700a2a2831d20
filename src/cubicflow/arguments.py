"""Checks of arguments, the message for an unknown name, and the arguments that ``config()`` returns."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from inspect import Parameter, signature
from operator import index
from typing import Any, TypeVar

T = TypeVar("T")
VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def positive(name: str, value: int) -> int:
    """Return ``value``; raise ValueError unless it is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return value


def whole_number(name: str, value: Any, least: int) -> int:
    """Return the argument as an int. A float such as 1e6 is accepted, and so is a number of NumPy.

    Raises ValueError for any other value, and for a number below ``least``.

    >>> whole_number("evaluations", 1e6, 0)
    1000000
    """
    try:
        found = int(value)
        whole = found == value and not _is_bool(value)  # "5" != 5
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole or found < least:
        raise ValueError(f"{name} must be a whole number, {least} or more, got {value!r}")
    return found


def number(
    name: str, value: Any, *, above: float = -math.inf, least: float = -math.inf, below: float = math.inf
) -> float:
    """Return the argument as a float. Raises ValueError unless it is a finite number within the bounds.

    >>> number("beta2", 1, least=0, below=1)
    Traceback (most recent call last):
    ...
    ValueError: beta2 must be a finite number, 0 or more and below 1, got 1
    """
    try:
        found = math.nan if _is_bool(value) or isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found) or not above < found < below or found < least:
        bounds = [f"above {above:g}"] * (above > -math.inf) + [f"{least:g} or more"] * (least > -math.inf)
        bounds += [f"below {below:g}"] * (below < math.inf)
        within = f", {' and '.join(bounds)}" if bounds else ""
        raise ValueError(f"{name} must be a finite number{within}, got {value!r}")
    return found


def one_of(name: str, value: T, choices: Iterable[T]) -> T:
    """Return ``value``; raise ValueError unless it is one of the choices.

    >>> one_of("solver", "euler", ["dopri5", "rk4"])
    Traceback (most recent call last):
    ...
    ValueError: solver must be 'dopri5' or 'rk4', got 'euler'
    """
    known = list(choices)
    if value not in known:
        texts = list(map(repr, known))
        allowed = " or ".join(texts) if len(texts) < 3 else f"one of {', '.join(texts)}"
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
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


def check_context_given(module: Any, context: Any, context_features: int) -> None:
    """Raise ValueError unless there is a context, of the right size, exactly if the module takes one."""
    name = type(module).__name__
    if context is None and context_features:
        shape = f"(N, {context_features})"
        raise ValueError(f"{name} was built with context_features={context_features}; pass context= of shape {shape}")
    if context is not None and not context_features:
        raise ValueError(f"{name} was built without context but got context; build it with context_features=")
    if context is not None and (context.ndim < 2 or context.shape[1] != context_features):
        raise ValueError(f"{name} expects context of shape (N, {context_features}), got {tuple(context.shape)}")


def config_of(module: object, *names: str) -> dict[str, Any]:
    """Return constructor arguments by name. The module keeps each argument as an attribute of the same name."""
    return {name: getattr(module, name) for name in names}


def arguments_of(module: object) -> dict[str, Any]:
    """Return all arguments of a module's constructor but ``*args`` and ``**settings``, as :func:`config_of` does."""
    named = [name for name, each in signature(type(module)).parameters.items() if each.kind not in VARIABLE]
    if lacking := [name for name in named if not hasattr(module, name)]:
        raise TypeError(
            f"{type(module).__name__} has no attribute {lacking[0]!r}, as its constructor has; keep "
            "the argument under this name, or override config()"
        )
    return config_of(module, *named)


def unknown_name(owner: str, kind: str, name: str, known: Iterable[str]) -> str:
    """Return a message about an unknown name, with the closest known name, if any is close, and all known names.

    >>> unknown_name("rows.parquet", "column", "lable", ["x", "label"])
    "rows.parquet has no column 'lable'; did you mean 'label'? It has: x, label"
    >>> unknown_name("rows.parquet", "column", "z", ["x", "label"])
    "rows.parquet has no column 'z'. It has: x, label"
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"{owner} has no {kind} {name!r}{hint} It has: {', '.join(names)}"


def _is_bool(value: Any) -> bool:
    """Return whether a value is a truth value of Python or NumPy, which would pass as 0 or 1."""
    return type(value).__name__ in ("bool", "bool_")
