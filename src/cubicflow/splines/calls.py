"""How a call gets from Python to a kernel: the hook of the splines, in which accelerated calls take their shortcuts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from cubicflow.hooks import hook

F = TypeVar("F", bound=Callable[..., Any])


class Launch(Protocol):
    """A launch of a Triton kernel that waits for its tensors."""

    @property
    def kernel(self) -> Any: ...

    @property
    def grid(self) -> tuple[int, int, int]: ...

    @property
    def compiled(self) -> dict[Any, Any]:
        """Empty at first: a place to remember compiled kernels in."""

    def named(self, strides: tuple[int, ...]) -> dict[str, Any]:
        """The kernel's other arguments by name; ``strides`` are those of its tensors."""


class Calls:
    """The plain way: every call passes all of torch's machinery, whether anybody needs it or not.

    A subclass may answer more precisely where that is safe. Each method says what a wrong answer would break.
    """

    def applier(self, function: type[torch.autograd.Function]) -> Callable[..., Any]:
        """``function.apply``, or something faster that does the same for arguments given by position."""
        apply: Callable[..., Any] = function.apply
        return apply

    def only_values(self, *tensors: Tensor) -> bool:  # noqa: ARG002
        """Whether nothing can differentiate a function of these tensors, backward, forward or in ``torch.func``. If
        true, the call skips autograd."""
        return False

    def unseen(self, *tensors: Tensor) -> bool:  # noqa: ARG002
        """Whether no tracer, transform, mode or profiler would notice an operator on these tensors, and all of them are
        plain memory. If true, the call skips torch's dispatcher."""
        return False

    def in_forward_mode(self) -> bool:
        """Whether tensors may have tangents. Kernels know none, so a wrong no loses derivatives."""
        if torch.compiler.is_compiling():  # which takes none
            return False
        try:
            forward_ad.make_dual(torch.zeros(1), torch.zeros(1))
        except RuntimeError:  # no dual level
            return False
        return True

    def constant(self, function: F) -> F:
        """Mark a function whose result compiled code may take for a constant."""
        marked: F = torch.compiler.assume_constant_result(function)
        return marked

    def launch(self, plan: Launch, tensors: tuple[Tensor, ...], strides: tuple[int, ...]) -> None:
        """Run a Triton kernel on tensors, the first of its parameters."""
        plan.kernel[plan.grid](*tensors, **plan.named(strides))


calls = hook("splines", Calls)
