"""Convert flows to plain JSON values and back. A description names classes from one table. Users register their own
classes in this table."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import Parameter, signature
from typing import Any, TypeVar

from torch import nn

from cubicflow import distributions, nets, transforms
from cubicflow.flows.flow import Flow
from cubicflow.flows.mixture import Mixture

Class = TypeVar("Class", bound=type)

# The classes that a description may name: cubicflow's own classes and registered classes.
TYPES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        Flow,
        Mixture,
        *(getattr(module, name) for module in (distributions, nets, transforms) for name in module.__all__),
    )
    if cls not in (distributions.Base, transforms.Transform)
}
TABLE_MODELS = ("ColumnsModel",)  # classes of cubicflow.tables; that package registers them when it is imported
BUILT_IN = frozenset(TYPES) | frozenset(TABLE_MODELS)


def register(cls: Class) -> Class:
    """Register a module class, so that flows with such modules can be saved and loaded.

    ``cls`` is a subclass of ``nn.Module`` with a method ``config()``. ``config()`` returns the arguments of the
    constructor as a dict of numbers, strings, None, modules, and lists of these. A saved file contains only names of
    classes. :func:`load` constructs only cubicflow's own classes and classes that the loading process has registered.
    ``register`` returns ``cls``, so it can be used as a decorator.

    Raises:
        TypeError: ``cls`` is not a subclass of ``nn.Module`` with a method ``config()``.
        ValueError: another class with this name is already known.

    >>> import tempfile, torch
    >>> import cubicflow as cf
    >>> @cf.register
    ... class TwoLayers(torch.nn.Sequential):
    ...     def __init__(self, inputs, outputs, hidden=16):
    ...         super().__init__(torch.nn.Linear(inputs, hidden), torch.nn.SiLU(), torch.nn.Linear(hidden, outputs))
    ...         self.sizes = {"inputs": inputs, "outputs": outputs, "hidden": hidden}
    ...
    ...     def config(self):
    ...         return self.sizes
    >>> layer = cf.transforms.Coupling([True, False], TwoLayers(1, 22), cf.transforms.ElementMap("cubic", num_bins=10))
    >>> flow = cf.Flow(cf.distributions.StandardNormal(2), layer)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     flow.save(folder)
    ...     again = cf.load(folder)
    >>> x = torch.randn(3, 2)
    >>> torch.equal(again.log_prob(x), flow.log_prob(x))
    True
    """
    if not isinstance(cls, type) or not issubclass(cls, nn.Module):
        got = f"an object of class {type(cls).__name__}" if not isinstance(cls, type) else f"the class {cls.__name__}"
        raise TypeError(f"register takes a subclass of torch.nn.Module, got {got}; pass the class of your module")
    name = cls.__name__
    if not callable(getattr(cls, "config", None)):
        raise TypeError(f"{name} has no method config(); add one that returns its constructor's arguments as a dict")
    known = TYPES.get(name, cls)
    # Running a notebook cell again defines the same class a second time. That is allowed.
    again = (cls.__module__, cls.__qualname__) == (known.__module__, known.__qualname__)
    if known is not cls and not (again and "<locals>" not in cls.__qualname__):
        raise ValueError(f"a class named {name} already exists, in {known.__module__}; rename one of the two")
    TYPES[name] = cls
    return cls


def try_describe(flow: Any) -> tuple[Any, list[str]]:
    """Return the description of a flow or of a part of a flow, and the names of its unregistered classes. If there are
    any, the description is incomplete."""
    missing: dict[str, None] = {}
    return _plain(flow, "the flow", missing), list(missing)


def describe(flow: Any) -> Any:
    """Return a flow, or a part of a flow, as plain JSON values. Raise a TypeError for an unregistered class."""
    description, missing = try_describe(flow)
    if missing:
        name = missing[0].rpartition(".")[2]
        raise TypeError(
            f"{missing[0]} is not one of cubicflow's own modules and is not registered; give it a method config() and "
            f"call cubicflow.register({name}), or save the flow's state_dict() and rebuild the flow in code"
        )
    return description


def build(description: Any) -> Any:
    """Build a flow, or a part of a flow, from its description: the inverse of :func:`describe`. Raise a ValueError for
    an invalid description."""
    if isinstance(description, list):
        return [build(item) for item in description]
    if isinstance(description, dict):
        arguments = dict(description)
        name = arguments.pop("type", None)
        if not isinstance(name, str) or name not in TYPES:
            raise ValueError(
                f"{name!r} is neither a class of cubicflow nor a registered class; import the module that defines the "
                "class and call cubicflow.register on it first"
            )
        parts = {key: build(value) for key, value in arguments.items()}
        try:
            return TYPES[name](**parts)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"{name} cannot be built from {sorted(arguments)}: {error}") from error
    return description


def registered_names(description: Any) -> list[str]:
    """Return the names of the classes in a description that are not cubicflow's own."""
    return sorted({str(part.get("type")) for part in parts_of(description)} - BUILT_IN)


def parts_of(description: Any) -> Iterator[dict[str, Any]]:
    """Yield the descriptions of all modules in a description: the outermost module and all nested ones."""
    waiting = [description]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _plain(value: Any, where: str, missing: dict[str, None]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, where, missing) for item in value]
    if not isinstance(value, nn.Module | transforms.ElementMap):
        kind = type(value).__name__
        raise TypeError(f"{where} is a {kind}; a config may hold numbers, strings, None, modules, and lists of these")
    cls = type(value)
    if TYPES.get(cls.__name__) is not cls:
        missing[f"{cls.__module__}.{cls.__qualname__}"] = None
        return None
    where = f"{cls.__name__}.config()"
    config: Any = value.config()  # type: ignore[operator] # every class in TYPES has a config method
    if not isinstance(config, dict) or "type" in config:
        raise TypeError(f"{where} must return a dict of the constructor's arguments, without an argument named 'type'")
    if lacking := [name for name in _arguments(cls) if name not in config]:
        raise TypeError(f"{where} lacks {', '.join(lacking)}; it must return all arguments of the constructor")
    parts = {str(key): _plain(part, f"{where}[{key!r}]", missing) for key, part in config.items()}
    return {"type": cls.__name__, **parts}


def _arguments(cls: type) -> list[str]:
    """Return the constructor arguments that ``config()`` of a user's class must return. An argument that is left out
    would silently get its default when the flow is loaded."""
    if cls.__init__.__module__.startswith("cubicflow."):  # type: ignore[misc] # the constructor is not called
        return []
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [name for name, argument in signature(cls).parameters.items() if argument.kind in named]
