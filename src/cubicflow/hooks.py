"""Hooks: a layer's plain implementation can be replaced by a faster one.

A layer with a hook defines a class with the plain implementation, and creates one instance of it with :func:`hook`. If
a module was registered for the layer with :func:`register_faster`, that module is imported together with the layer. The
module calls :func:`use_faster`, which changes the instance's class to a faster subclass. The class of a live object is
changed, because the module may have been imported before the layer has finished its own import.
"""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

T = TypeVar("T")

_faster: dict[str, str] = {}
_hooks: dict[str, Any] = {}


def register_faster(layer: str, module: str) -> None:
    """Register the module with a layer's faster class. The module is imported together with the layer."""
    _faster[layer] = module


def hook(layer: str, plain: type[T]) -> T:
    """Create and return the hook of a layer: an instance of ``plain``, made faster by the registered module if any."""
    instance = plain()
    _hooks[layer] = instance
    if layer in _faster:
        importlib.import_module(_faster[layer])
    return instance


def use_faster(layer: str, faster: type[Any]) -> None:
    """Change the class of a layer's hook to ``faster``. Does nothing if no module was registered for the layer.

    The registered module calls this function in its last line.
    """
    if layer in _faster:
        _hooks[layer].__class__ = faster
