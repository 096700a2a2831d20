"""Spline calls that skip unneeded parts of torch. On a small batch, autograd and dispatch take longer than a kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad, profiler

from cubicflow.accel.private import CONSTANT_MARK, allowed, find, has, launches_are_known
from cubicflow.hooks import use_faster
from cubicflow.splines.calls import Calls, F, Launch

_transforms = find("torch._C._functorch", "peek_interpreter_stack")  # returns None outside of torch.func transforms
_unwrap_if_dead = find("torch._C._functorch", "unwrap_if_dead")
_is_legacy_batched = find("torch._C._functorch", "is_legacy_batchedtensor")
_dispatch_modes = find("torch._C", "_len_torch_dispatch_stack")
_tracing_state = find("torch._C", "_get_tracing_state")

_KNOWS_LEVELS = has("_current_level")
_CAN_APPLY = has("peek_interpreter_stack", "unwrap_if_dead", "_FunctionBase")
_KNOWS_DERIVATIVES = has("peek_interpreter_stack", "_current_level")
_KNOWS_WATCHERS = has(
    "peek_interpreter_stack",
    "is_legacy_batchedtensor",
    "_len_torch_dispatch_stack",
    "_get_tracing_state",
    "_is_profiler_enabled",
)
_KNOWS_LAUNCHES = launches_are_known()
_PLAIN_TYPES = (Tensor, torch.nn.Parameter)


class LightCalls(Calls):
    """A hook that skips autograd and the dispatcher for calls that no tracer, transform or profiler observes."""

    def applier(self, function: type[torch.autograd.Function]) -> Callable[..., Any]:
        """Return a faster ``apply``. torch's ``apply`` looks up the signature of ``forward`` and binds the arguments at
        every call, but only transforms and compilers need that."""
        if not _CAN_APPLY:
            return super().applier(function)
        apply_alone = super(torch.autograd.Function, function).apply  # type: ignore[misc]

        def apply(*args: Any) -> Any:
            if torch.compiler.is_compiling() or _transforms() is not None:
                return function.apply(*args)
            return apply_alone(*[_unwrap_if_dead(arg) if isinstance(arg, Tensor) else arg for arg in args])

        return apply

    def only_values(self, *tensors: Tensor) -> bool:
        # A compiler decides itself whether derivatives are needed.
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
        # Two kinds of tensors have the type Tensor but are not plain memory: a negated view, whose memory holds minus
        # its values, and a tensor batched by is_grads_batched, which has no memory. The dispatcher handles both.
        for tensor in tensors:
            if type(tensor) not in _PLAIN_TYPES or tensor.is_neg() or _is_legacy_batched(tensor):
                return False
        return True

    def in_forward_mode(self) -> bool:
        if not _KNOWS_LEVELS:
            return super().in_forward_mode()
        return not torch.compiler.is_compiling() and forward_ad._current_level >= 0

    def constant(self, function: F) -> F:
        """Mark the function directly. torch's decorator would import the whole compiler to set the same mark."""
        if not allowed():
            return super().constant(function)
        setattr(function, CONSTANT_MARK, True)
        return function

    def launch(self, plan: Launch, tensors: tuple[Tensor, ...], strides: tuple[int, ...]) -> None:
        """Run a Triton kernel, with a cache of compiled kernels. Triton inspects all arguments of a call to choose the
        compiled kernel, which takes longer than the kernel. Given the plan, the choice depends on the device, the
        strides and the 16-byte alignment of the tensors. These are the cache key."""
        if not _KNOWS_LAUNCHES:
            super().launch(plan, tensors, strides)
            return
        pointers = [tensor.data_ptr() for tensor in tensors]
        key = (tensors[0].get_device(), strides, *[pointer % 16 == 0 for pointer in pointers])
        if key in plan.compiled:
            run, rest = plan.compiled[key]
            run(*pointers, *rest)  # pass addresses: for a tensor, Triton would query the driver
            return
        named = plan.named(strides)
        run = plan.kernel[plan.grid](*tensors, **named)
        if run is not None:  # Triton's interpreter compiles nothing and returns None
            names = list(inspect.signature(plan.kernel.fn).parameters)[len(tensors) :]
            plan.compiled[key] = run[plan.grid], tuple(named[name] for name in names)


use_faster("splines", LightCalls)
