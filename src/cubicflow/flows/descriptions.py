"""Flows as plain values and back. A description names classes from one list, to which users add their own."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import Parameter, signature
from typing import Any, TypeVar

from torch import nn

from cubicflow import distributions, nets, transforms
from cubicflow.flows.flow import Flow
from cubicflow.flows.mixture import Mixture

Class = TypeVar("Class", bound=type)

# What a description may name: cubicflow's own classes, and those that were registered.
TYPES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        Flow,
        Mixture,
        *(getattr(module, name) for module in (distributions, nets, transforms) for name in module.__all__),
    )
    if cls not in (distributions.Base, transforms.Transform)
}
TABLE_MODELS = ("ColumnsModel",)  # of cubicflow.tables, which this layer does not know, and which registers them
OWN = frozenset(TYPES) | frozenset(TABLE_MODELS)


def register(cls: Class) -> Class:
    """Let flows that contain modules of class ``cls`` be saved and loaded.

    ``cls`` is a class of ``nn.Module`` with a method ``config()`` that returns the arguments of its constructor as a
    dict: numbers, strings, None, modules, and lists of them. A file only ever names classes; the ones that :func:`load`
    may construct are cubicflow's own and those registered in the process that loads. Returns ``cls``, so that it can
    decorate a class.

    Raises:
        TypeError: ``cls`` is not such a class.
        ValueError: another class of that name is known already.

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
        what = f"an object of class {type(cls).__name__}" if not isinstance(cls, type) else f"the class {cls.__name__}"
        raise TypeError(f"register takes a class that derives from torch.nn.Module, got {what}; register such a class")
    name = cls.__name__
    if not callable(getattr(cls, "config", None)):
        raise TypeError(f"{name} has no method config(); add one that returns its constructor's arguments as a dict")
    known = TYPES.get(name, cls)
    # After a notebook's cell was run again it is the same class once more.
    again = (cls.__module__, cls.__qualname__) == (known.__module__, known.__qualname__)
    if known is not cls and not (again and "<locals>" not in cls.__qualname__):
        raise ValueError(f"there is a class {name} already, in {known.__module__}; rename one of the two")
    TYPES[name] = cls
    return cls


def described(flow: Any) -> tuple[Any, list[str]]:
    """The description of a flow, or of any part of one, and the classes for want of which it is none."""
    missing: dict[str, None] = {}
    return _plain(flow, "the flow", missing), list(missing)


def describe(flow: Any) -> Any:
    """A flow, or any part of one, as plain JSON values."""
    description, missing = described(flow)
    if missing:
        name = missing[0].rpartition(".")[2]
        raise TypeError(
            f"{missing[0]} is not one of cubicflow's own modules, so no config can describe it; give it a config() and "
            f"call cubicflow.register({name}), or save the flow's state_dict() and rebuild the flow in code"
        )
    return description


def build(description: Any) -> Any:
    """The inverse of :func:`describe`. Raises ValueError for what describes nothing."""
    if isinstance(description, list):
        return [build(item) for item in description]
    if isinstance(description, dict):
        arguments = dict(description)
        name = arguments.pop("type", None)
        if not isinstance(name, str) or name not in TYPES:
            raise ValueError(
                f"{name!r} is not a class of cubicflow's, and none of that name is registered; import the module that "
                "defines it and call cubicflow.register on it first"
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
    """The classes in a description that are not cubicflow's own."""
    return sorted({str(part.get("type")) for part in parts_of(description)} - OWN)


def parts_of(description: Any) -> Iterator[dict[str, Any]]:
    """All modules in a description, itself and those in others, however deep."""
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
        raise TypeError(f"{where} is a {kind}; a config holds numbers, strings, None, modules, and lists of them")
    cls = type(value)
    if TYPES.get(cls.__name__) is not cls:
        missing[f"{cls.__module__}.{cls.__qualname__}"] = None
        return None
    where = f"{cls.__name__}.config()"
    config: Any = value.config()  # type: ignore[operator] # every type in the list has one
    if not isinstance(config, dict) or "type" in config:
        raise TypeError(f"{where} must return a dict of the constructor's arguments, none of them named 'type'")
    if lacking := [name for name in _arguments(cls) if name not in config]:
        raise TypeError(f"{where} lacks {', '.join(lacking)}; it must return all arguments of the constructor")
    parts = {str(key): _plain(part, f"{where}[{key!r}]", missing) for key, part in config.items()}
    return {"type": cls.__name__, **parts}


def _arguments(cls: type) -> list[str]:
    """The arguments of a constructor of the user's own. One that config() leaves out would be the default again."""
    if cls.__init__.__module__.startswith("cubicflow."):  # type: ignore[misc] # it is only looked at
        return []
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [name for name, argument in signature(cls).parameters.items() if argument.kind in named]
