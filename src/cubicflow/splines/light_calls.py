"""What makes calls light: for ``autograd.Function``, and for functions that compiled code asks for a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack, unwrap_if_dead
from torch.autograd import forward_ad

F = TypeVar("F", bound=Callable[..., object])


def light_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """A Function's ``apply``, which at every call looks for the signature of ``forward`` and binds the arguments to it:
    that takes longer than a small kernel runs, and only transforms and compilers need it. All of the arguments have to
    be given, by position."""
    apply_alone = super(torch.autograd.Function, function).apply  # type: ignore[misc]

    def apply(*args: Any) -> Any:
        if torch.compiler.is_compiling() or peek_interpreter_stack() is not None:
            return function.apply(*args)
        return apply_alone(*[unwrap_if_dead(arg) if isinstance(arg, Tensor) else arg for arg in args])

    return apply


def nothing_differentiates(*tensors: Tensor) -> bool:
    """Neither backward, nor forward mode, nor a transform of ``torch.func``: a Function would only cost its time.
    Compilers find that out for themselves."""
    if torch.compiler.is_compiling() or (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        return False
    return forward_ad._current_level < 0 and peek_interpreter_stack() is None


def in_forward_mode() -> bool:
    """Whether tensors may have tangents. Compilers take none."""
    return not torch.compiler.is_compiling() and forward_ad._current_level >= 0


def constant_when_compiled(function: F) -> F:
    """``torch.compiler.assume_constant_result``, which imports the whole compiler in order to set this mark."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
