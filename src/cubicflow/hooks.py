"""Hooks: a layer's plain implementation can be replaced by a faster one.

A layer with a hook defines a class with the plain implementation, and creates one instance of it with :func:`hook`. If
a module was registered for the layer with :func:`register_faster`, that module is imported together with the layer. The
module calls :func:`use_faster`, which changes the class of the instance. A layer could not look the faster class up
instead: if the module is imported first, it imports the layer while the module itself is only half made.
"""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

T = TypeVar("T")

_modules: dict[str, str] = {}  # registered, by layer
_instances: dict[str, Any] = {}  # by layer


def register_faster(layer: str, module: str) -> None:
    """Register the module with a layer's faster implementation. The module is imported together with the layer."""
    _modules[layer] = module


def hook(layer: str, plain: type[T]) -> T:
    """Create and return the hook of a layer: an instance of ``plain``, or of the registered faster subclass."""
    instance = plain()
    _instances[layer] = instance
    if layer in _modules:
        importlib.import_module(_modules[layer])
    return instance


def use_faster(layer: str, faster: type[Any]) -> None:
    """Change the class of a layer's hook to ``faster``. Does nothing if no module was registered for the layer.

    The registered module calls this function in its last line.
    """
    if layer in _modules:
        _instances[layer].__class__ = faster
