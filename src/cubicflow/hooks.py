"""Where a layer lets a faster way of doing the same thing in.

A layer with a hook defines a class whose methods do the plain thing, and makes its one instance by :func:`hook`. The
module that was offered for it is imported with the layer, and gives the instance the methods of a subclass.
"""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

T = TypeVar("T")

_offers: dict[str, str] = {}
_hooks: dict[str, Any] = {}


def offer(layer: str, module: str) -> None:
    """Have the hook of a layer filled by a module, which is imported with the layer."""
    _offers[layer] = module


def hook(layer: str, plain: type[T]) -> T:
    """The one hook of a layer: plain, or filled by the module that was offered for it."""
    made = plain()
    _hooks[layer] = made
    if layer in _offers:
        importlib.import_module(_offers[layer])
    return made


def fill(layer: str, faster: type[Any]) -> None:
    """Called by a module that fills the hook of a layer, as its last act; nothing happens unless it was offered."""
    if layer in _offers:
        _hooks[layer].__class__ = faster
