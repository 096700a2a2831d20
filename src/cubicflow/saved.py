"""Dataclasses that are saved as JSON. Values that come from a file are checked against the annotations of the fields.

An annotation is int, float, str, bool, None, a Literal, a list, a tuple[T, ...] or a dict[str, T] of these, another
dataclass, a union, or an ``Annotated[T, Range(...)]``. ``dataclasses.asdict`` is the way to JSON.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
LARGEST = 2**53  # a float holds every integer up to this one


class Range(NamedTuple):
    """Bounds of a number, both included."""

    least: float = -math.inf
    most: float = math.inf


Count = Annotated[int, Range(0, LARGEST)]


class SavedValueError(ValueError):
    """A value from a file has a wrong type or is out of bounds. The message is a phrase whose subject is the file."""


def from_json(kind: type[T], values: Any) -> T:
    """Return a dataclass from plain values. Further values are left out; a field with a default may be missing.

    Raises SavedValueError with the name of the first field that is wrong.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Limits:
    ...     steps: Count
    ...     names: list[str]
    >>> from_json(Limits, {"steps": 3, "names": ["a"], "more": 1})
    Limits(steps=3, names=['a'])
    >>> from_json(Limits, {"steps": 3, "names": ["a", 1]})
    Traceback (most recent call last):
    ...
    cubicflow.saved.SavedValueError: has the invalid value '1' for names[1]
    """
    if not isinstance(values, dict):
        raise SavedValueError(f"is a {type(values).__name__}, not a set of named values")
    known: Any = fields(kind)  # type: ignore[arg-type] # a dataclass
    needed = [field.name for field in known if field.default is MISSING and field.default_factory is MISSING]
    if missing := [name for name in needed if name not in values]:
        raise SavedValueError(f"lacks {', '.join(missing)}")
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in known if field.name in values]
    return kind(**{name: _checked(hints[name], values[name], name) for name in names})


def _checked(hint: Any, value: Any, where: str) -> Any:
    """Return a value of the type that the annotation names; raise SavedValueError for any other value."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        found = _checked(arguments[0], value, where)
        if all(least <= found <= most for least, most in arguments[1:]):
            return found
    elif origin in (Union, UnionType):
        for one in arguments:
            try:
                return _checked(one, value, where)
            except SavedValueError:
                continue
    elif origin is Literal:
        if any(type(value) is type(one) and value == one for one in arguments):
            return value
    elif origin in (list, tuple):
        if isinstance(value, list):
            return origin(_checked(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    elif origin is dict:
        if isinstance(value, dict):
            return {key: _checked(arguments[1], item, f"{where}[{key!r}]") for key, item in value.items()}
    elif is_dataclass(hint):
        try:
            return from_json(hint, value)  # type: ignore[arg-type] # a class
        except SavedValueError as error:
            raise SavedValueError(f"{error}, in {where}") from None
    elif hint is float:
        if type(value) is float and math.isfinite(value):
            return value
        if type(value) is int and abs(value) <= LARGEST:
            return float(value)
    elif type(value) is hint and not (hint is int and abs(value) > LARGEST):
        return value
    raise SavedValueError(f"has the invalid value {str(value)[:40]!r} for {where}")
