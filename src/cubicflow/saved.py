"""Dataclasses that are saved as JSON. Values that come from a file are checked against the annotations of the fields.

An annotation is int, float, str, bool, None, a Literal, a list, a tuple or a dict[str, T] of these, another dataclass,
a union, or an ``Annotated[T, Range(...)]``. ``dataclasses.asdict`` is the way to JSON. A field that is saved under
another name has this name as ``metadata={"key": ...}``.
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


def from_json(kind: type[T], values: Any, *, exact: bool = False) -> T:
    """Return a dataclass from plain values. A field with a default may be missing. Further values are left out or, if
    ``exact`` is true, refused.

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
    keys = {field.name: str(field.metadata.get("key", field.name)) for field in known}
    needed = [keys[each.name] for each in known if each.default is MISSING and each.default_factory is MISSING]
    if missing := [key for key in needed if key not in values]:
        raise SavedValueError(f"lacks {', '.join(missing)}")
    if exact and (unknown := [str(key)[:40] for key in values if key not in keys.values()]):
        raise SavedValueError(f"has the unknown values {', '.join(unknown[:5])}")
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{name: _checked(hints[name], values[key], key, exact) for name, key in keys.items() if key in values})


def _checked(hint: Any, value: Any, where: str, exact: bool) -> Any:
    """Return a value of the type that the annotation names; raise SavedValueError for any other value."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        # the bounds of a whole number take the place of those that every whole number has
        is_whole = arguments[0] is int and type(value) is int
        found = value if is_whole else _checked(arguments[0], value, where, exact)
        if all(least <= found <= most for least, most in arguments[1:]):
            return found
    elif origin in (Union, UnionType):
        for one in arguments:
            try:
                return _checked(one, value, where, exact)
            except SavedValueError:
                continue
    elif origin is Literal:
        if any(type(value) is type(one) and value == one for one in arguments):
            return value
    elif origin in (list, tuple):
        if isinstance(value, list | tuple):
            hints = arguments if origin is tuple and ... not in arguments else arguments[:1] * len(value)
            if len(hints) == len(value):
                return origin(_checked(hints[i], item, f"{where}[{i}]", exact) for i, item in enumerate(value))
    elif origin is dict:
        if isinstance(value, dict):
            return {key: _checked(arguments[1], item, f"{where}[{key!r}]", exact) for key, item in value.items()}
    elif is_dataclass(hint):
        try:
            return from_json(hint, value, exact=exact)  # type: ignore[arg-type] # a class
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
