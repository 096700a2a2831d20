"""Spline calls that go past what they do not need: on a small batch, torch's machinery takes longer than a kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad, profiler

from cubicflow.accel.private import CONSTANT_MARK, allowed, find, has
from cubicflow.hooks import fill
from cubicflow.splines.calls import Calls, F, Launch

_transforms = find("torch._C._functorch", "peek_interpreter_stack")  # None outside of all transforms of torch.func
_unwrap_if_dead = find("torch._C._functorch", "unwrap_if_dead")
_is_legacy_batched = find("torch._C._functorch", "is_legacy_batchedtensor")
_dispatch_modes = find("torch._C", "_len_torch_dispatch_stack")
_tracing_state = find("torch._C", "_get_tracing_state")

_KNOWS_LEVELS = has("_current_level")
_CAN_APPLY = has("peek_interpreter_stack", "unwrap_if_dead")
_KNOWS_DERIVATIVES = has("peek_interpreter_stack", "_current_level")
_KNOWS_WATCHERS = has(
    "peek_interpreter_stack",
    "is_legacy_batchedtensor",
    "_len_torch_dispatch_stack",
    "_get_tracing_state",
    "_is_profiler_enabled",
)
_PLAIN_TYPES = (Tensor, torch.nn.Parameter)


class LightCalls(Calls):
    """Shortcuts for calls that nobody watches."""

    def applier(self, function: type[torch.autograd.Function]) -> Callable[..., Any]:
        """``apply`` looks up the signature of ``forward`` and binds the arguments to it at every call, which only
        transforms and compilers need."""
        if not _CAN_APPLY:
            return super().applier(function)
        apply_alone = super(torch.autograd.Function, function).apply  # type: ignore[misc]

        def apply(*args: Any) -> Any:
            if torch.compiler.is_compiling() or _transforms() is not None:
                return function.apply(*args)
            return apply_alone(*[_unwrap_if_dead(arg) if isinstance(arg, Tensor) else arg for arg in args])

        return apply

    def only_values(self, *tensors: Tensor) -> bool:
        # Compilers find out for themselves what is differentiated.
        if not _KNOWS_DERIVATIVES or torch.compiler.is_compiling():
            return False
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return False
        return forward_ad._current_level < 0 and _transforms() is None

    def unseen(self, *tensors: Tensor) -> bool:
        if (
            not _KNOWS_WATCHERS
            or torch.compiler.is_compiling()
            or _transforms() is not None
            or _dispatch_modes() > 0
            or profiler._is_profiler_enabled
            or _tracing_state() is not None
        ):
            return False
        # Two kinds call themselves a Tensor: a negated view, whose memory holds minus its values, and one that was
        # batched by is_grads_batched, which has no memory. The dispatcher makes plain tensors of both.
        for tensor in tensors:
            if type(tensor) not in _PLAIN_TYPES or tensor.is_neg() or _is_legacy_batched(tensor):
                return False
        return True

    def in_forward_mode(self) -> bool:
        if not _KNOWS_LEVELS:
            return super().in_forward_mode()
        return not torch.compiler.is_compiling() and forward_ad._current_level >= 0

    def constant(self, function: F) -> F:
        """The decorator of torch imports the whole compiler in order to set this mark."""
        if not allowed():
            return super().constant(function)
        setattr(function, CONSTANT_MARK, True)
        return function

    def launch(self, plan: Launch, tensors: tuple[Tensor, ...], strides: tuple[int, ...]) -> None:
        """Triton looks at all arguments of a call to find out which compiled kernel is meant, which takes longer than
        the kernel. Beside the plan and the strides that depends on the device and on which tensors begin at a multiple
        of 16 bytes: where those were met before, the compiled kernel is run on the tensors' addresses."""
        pointers = [tensor.data_ptr() for tensor in tensors]
        known = (tensors[0].get_device(), strides, *[pointer % 16 == 0 for pointer in pointers])
        if known in plan.compiled:
            run, rest = plan.compiled[known]
            run(*pointers, *rest)  # given a tensor, Triton would ask the driver whether it is on a GPU
            return
        named = plan.named(strides)
        run = plan.kernel[plan.grid](*tensors, **named)
        if run is not None:  # as it is after the interpreter
            names = list(inspect.signature(plan.kernel.fn).parameters)[len(tensors) :]
            plan.compiled[known] = run[plan.grid], tuple(named[name] for name in names)


fill("splines", LightCalls)
