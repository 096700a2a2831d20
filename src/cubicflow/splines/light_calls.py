"""What makes calls light: for ``autograd.Function``, and for functions that compiled code asks for a constant."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

F = TypeVar("F", bound=Callable[..., object])


class _Bound(NamedTuple):
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def apply_defaults(self) -> None: ...


class _AsGiven(inspect.Signature):
    """Binds arguments without looking at them, which is right for functions without default values."""

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        return _Bound(args, kwargs)


def with_signature(forward: F) -> F:
    """Find the signature of a Function's ``forward`` once: ``apply()`` asks for it and binds arguments to it at every
    call, which takes longer than a small kernel runs. All of the arguments have to be given, by position."""
    parameters = inspect.signature(forward).parameters.values()
    if any(parameter.default is not parameter.empty for parameter in parameters):
        raise TypeError(f"{forward.__qualname__} has default values, which would not be filled in")
    forward.__signature__ = _AsGiven(list(parameters))  # type: ignore[attr-defined]
    return forward


def nothing_differentiates(*tensors: Tensor) -> bool:
    """Neither backward, nor forward mode, nor a transform of ``torch.func``: a Function would only cost its time.
    Compilers find that out for themselves."""
    if torch.compiler.is_compiling() or (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        return False
    return forward_ad._current_level < 0 and torch._C._functorch.peek_interpreter_stack() is None


def constant_when_compiled(function: F) -> F:
    """``torch.compiler.assume_constant_result``, which imports the whole compiler in order to set this mark."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
