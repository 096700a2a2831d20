"""Recipe files: TOML files with all settings of an experiment. The tables ``[quick]`` and ``[paper]`` have changes, for
the short form and for the model as the paper describes it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from cubicflow.arguments import unknown_name

Settings = dict[str, Any]
T = TypeVar("T")

RECIPES = Path(__file__).parent / "recipes"
QUICK, PAPER = "quick", "paper"
NOTHING = "none"  # TOML has no null; this string is read as None


def load_recipe(name: str, changes: Path | None = None, *, quick: bool = False, paper: bool = False) -> Settings:
    """Return the settings of an experiment: the recipe in this folder, updated with the user's TOML file ``changes``.

    Raises ValueError for ``paper`` if the experiment has no other model.

    >>> load_recipe("figure-1")["num_bins"]
    10
    """
    settings = tomllib.loads((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))
    short, of_the_paper = settings.pop(QUICK, {}), settings.pop(PAPER, {})
    if quick:
        settings = merged(settings, short)
    if paper and not of_the_paper:
        raise ValueError(f"--paper belongs to figure-2 and figure-3, not to {name}; leave it out")
    if paper:
        settings = merged(settings, of_the_paper)
    if changes is not None:
        if not changes.is_file():
            raise FileNotFoundError(f"there is no recipe at {changes}; check the path")
        try:
            changed = tomllib.loads(changes.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{changes} is not a TOML file: {error}") from None
        _check_kinds(settings, changed, str(changes))
        settings = merged(settings, changed)
    return dict(_with_none(settings))


def merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    """Return a copy of the settings, updated with ``changes`` table by table.

    >>> merged({"a": 1, "t": {"b": 2, "c": 3}}, {"t": {"c": 4}})
    {'a': 1, 't': {'b': 2, 'c': 4}}
    """
    result = dict(settings)
    for name, value in changes.items():
        before = result.get(name)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        result[name] = merged(before, value) if both else value  # type: ignore[arg-type] # both are mappings
    return result


def _check_kinds(settings: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> None:
    """Raise ValueError if a value in ``changes`` is of another kind than the setting that it replaces.

    ``where`` names the file and the table in the message.
    """
    for name, value in changes.items():
        if name not in settings or NOTHING in (settings[name], value):
            continue
        before = settings[name]
        if _kind(before) != _kind(value):
            raise ValueError(f"{where}: {name} must be {_kind(before)}, got {_kind(value)}: {value!r}")
        if isinstance(before, Mapping):
            _check_kinds(before, value, f"{where}, [{name}]")


def _kind(value: Any) -> str:
    number = "a number"
    kinds = {bool: "true or false", int: number, float: number, str: "a string", list: "a list", dict: "a table"}
    return kinds.get(type(value), "a date or time")


def typed(kind: type[T], settings: Mapping[str, Any], experiment: str) -> T:
    """Return the settings as a dataclass. Raises ValueError for unknown and for missing settings."""
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type] # T is a dataclass
    for name in settings:
        if name not in known:
            raise ValueError(unknown_name(f"the recipe of {experiment}", "setting", name, known))
    for name, field in known.items():
        if name not in settings and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"the recipe of {experiment} lacks {name!r}; it has: {', '.join(known)}")
    return kind(**settings)


def _with_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_none(part) for name, part in value.items()}
    return None if value == NOTHING else value
