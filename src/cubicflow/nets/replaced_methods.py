"""Find methods of modules that were replaced from outside: on one module, or on its class."""

from __future__ import annotations

from types import FunctionType

from torch import nn


def replaced_method(module: nn.Module) -> str | None:
    """Return the name of a method of ``module`` that was replaced on the module, or None.

    An attribute in ``vars(module)`` hides the method of the same name. A call from outside reaches the attribute.

    >>> layer = nn.Linear(2, 2)
    >>> replaced_method(layer)
    >>> layer.forward = lambda x: x
    >>> replaced_method(layer)
    'forward'
    """
    return next((name for name in vars(module) if callable(getattr(type(module), name, None))), None)


def replaced_in_class(kind: type) -> str | None:
    """Return the name of a method that another package assigned to ``kind`` or to one of its bases, or None."""
    for owner in kind.__mro__:
        packages = {owner.__module__.partition(".")[0], "torch", "contextlib"}  # both have decorators of methods
        for name, value in vars(owner).items():
            function = getattr(value, "__func__", value)  # the function of a static method or a class method
            while isinstance(function, FunctionType):
                # The globals, because functools.wraps copies __module__ from the function that it wraps.
                if str(function.__globals__.get("__name__")).partition(".")[0] not in packages:
                    return name
                function = getattr(function, "__wrapped__", None)
    return None
