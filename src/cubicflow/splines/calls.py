"""The hook between a spline call and its kernel. ``cubicflow.accel`` replaces the hook with faster paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from cubicflow.hooks import hook

F = TypeVar("F", bound=Callable[..., Any])


class Launch(Protocol):
    """A planned launch of a Triton kernel: everything but the tensors."""

    @property
    def kernel(self) -> Any: ...

    @property
    def grid(self) -> tuple[int, int, int]: ...

    @property
    def compiled(self) -> dict[Any, Any]:
        """A cache of compiled kernels, empty at first."""

    def kernel_arguments(self, strides: tuple[int, ...]) -> dict[str, Any]:
        """Return the kernel's keyword arguments, given the strides of its tensors."""


class Calls:
    """The default hook: every call goes through autograd and torch's dispatcher.

    A subclass may skip either of them where that is safe. The docstring of each method says what depends on its result.
    """

    def fast_apply(self, function: type[torch.autograd.Function]) -> Callable[..., Any]:
        """Return ``function.apply``, or a faster equivalent that takes positional arguments only."""
        apply: Callable[..., Any] = function.apply
        return apply

    def needs_no_grad(self, *tensors: Tensor) -> bool:  # noqa: ARG002
        """Return whether a function of these tensors needs no derivative: backward, forward or in ``torch.func``. If
        true, the call skips autograd."""
        return False

    def plain_eager(self, *tensors: Tensor) -> bool:  # noqa: ARG002
        """Return whether no tracer, transform, mode or profiler would see an operator on these tensors, and all of them
        are plain memory. If true, the call skips torch's dispatcher."""
        return False

    def in_forward_mode(self) -> bool:
        """Return whether tensors may carry forward-mode tangents. Kernels ignore tangents, so a wrong False would lose
        derivatives."""
        if torch.compiler.is_compiling():  # compiled code does not support forward mode
            return False
        try:
            forward_ad.make_dual(torch.zeros(1), torch.zeros(1))
        except RuntimeError:  # make_dual raises outside forward-mode AD
            return False
        return True

    def compile_time_constant(self, function: F) -> F:
        """Mark a function whose result compiled code may treat as a constant."""
        marked: F = torch.compiler.assume_constant_result(function)
        return marked

    def launch(self, plan: Launch, tensors: tuple[Tensor, ...], strides: tuple[int, ...]) -> None:
        """Run a Triton kernel. The tensors are its first arguments."""
        plan.kernel[plan.grid](*tensors, **plan.kernel_arguments(strides))


calls = hook("splines", Calls)
