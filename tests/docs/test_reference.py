"""The reference has every public name, and every public name has an example. (The examples run as doctests.)"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import cubicflow as cf

REFERENCE = Path(__file__).parents[2] / "docs" / "api"
DIRECTIVE = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.MULTILINE)


def resolve(identifier: str) -> Any:
    """Return a module, or an object in a module, by its full name."""
    try:
        return importlib.import_module(identifier)
    except ModuleNotFoundError:
        module, name = identifier.rsplit(".", 1)
        return getattr(importlib.import_module(module), name)


def names_of(module: ModuleType, settings: dict[str, Any]) -> list[str]:
    """Return the names that the reference shows of a module: the listed members, or __all__, or all definitions."""
    members = settings.get("options", {}).get("members") or getattr(module, "__all__", None)
    if members is not None:
        return list(members)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def shown() -> dict[str, Any]:
    """Return every object of the reference by its full name."""
    found = {}
    for page in sorted(REFERENCE.glob("*.md")):
        for identifier, settings in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            value = resolve(identifier)
            if isinstance(value, ModuleType):
                names = names_of(value, yaml.safe_load(settings) or {})
                found |= {f"{identifier}.{name}": getattr(value, name) for name in names}
            else:
                found[identifier] = value
    return found


SHOWN = shown()
DOCUMENTED = {name: value for name, value in SHOWN.items() if inspect.isclass(value) or inspect.isfunction(value)}


def test_every_public_name_is_in_the_reference() -> None:
    packages = [value for name in cf.__all__ if isinstance(value := getattr(cf, name), ModuleType)]
    public = [(module, name) for module in [cf, *packages] for name in getattr(module, "__all__", [])]
    values = list(SHOWN.values())
    missing = [
        f"{module.__name__}.{name}"
        for module, name in public
        if not isinstance(value := getattr(module, name), ModuleType) and not any(value is known for known in values)
    ]
    assert len(public) > 50
    assert not missing


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_shows_an_example(name: str) -> None:
    own = vars(DOCUMENTED[name]).get("__doc__") if inspect.isclass(DOCUMENTED[name]) else DOCUMENTED[name].__doc__
    assert ">>>" in (own or ""), f"the docstring of {name} has no example; add one that runs, after >>>"
