"""Hooks: a layer's plain implementation can be replaced by a faster one.

A layer with a hook defines a class with the plain implementation, and creates one instance of it with :func:`hook`. If
a module was registered for the layer with :func:`offer`, that module is imported together with the layer. The module
calls :func:`fill`, which changes the instance's class to a faster subclass.
"""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

T = TypeVar("T")

_offers: dict[str, str] = {}
_hooks: dict[str, Any] = {}


def offer(layer: str, module: str) -> None:
    """Register the module that fills a layer's hook. The module is imported together with the layer."""
    _offers[layer] = module


def hook(layer: str, plain: type[T]) -> T:
    """Create and return the hook of a layer: an instance of ``plain``, filled by the registered module if any."""
    instance = plain()
    _hooks[layer] = instance
    if layer in _offers:
        importlib.import_module(_offers[layer])
    return instance


def fill(layer: str, faster: type[Any]) -> None:
    """Change the class of a layer's hook to ``faster``. Does nothing if no module was registered for the layer.

    The registered module calls this function in its last line.
    """
    if layer in _offers:
        _hooks[layer].__class__ = faster
