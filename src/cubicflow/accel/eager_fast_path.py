"""Spline calls that skip unneeded parts of torch. On a small batch, autograd and dispatch take longer than a kernel."""

from __future__ import annotations

import inspect
import warnings
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

_agreements: dict[int, bool] = {}  # of launches by position with launches as documented, by the identity of a kernel
NOT_BY_POSITION = (
    "spline calls are slower: this version of Triton does not launch compiled kernels as cubicflow expects"
)


class FastCalls(Calls):
    """A hook that skips autograd and the dispatcher for calls that no tracer, transform or profiler observes."""

    def fast_apply(self, function: type[torch.autograd.Function]) -> Callable[..., Any]:
        """Return a faster ``apply``. torch's ``apply`` looks up the signature of ``forward`` and binds the arguments at
        every call, but only transforms and compilers need that."""
        if not _CAN_APPLY:
            return super().fast_apply(function)
        apply_alone = super(torch.autograd.Function, function).apply  # type: ignore[misc]

        def apply(*args: Any) -> Any:
            if torch.compiler.is_compiling() or _transforms() is not None:
                return function.apply(*args)
            return apply_alone(*[_unwrap_if_dead(arg) if isinstance(arg, Tensor) else arg for arg in args])

        return apply

    def needs_no_grad(self, *tensors: Tensor) -> bool:
        # A compiler decides itself whether derivatives are needed.
        if not _KNOWS_DERIVATIVES or torch.compiler.is_compiling():
            return False
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return False
        return forward_ad._current_level < 0 and _transforms() is None

    def plain_eager(self, *tensors: Tensor) -> bool:
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

    def compile_time_constant(self, function: F) -> F:
        """Mark the function directly. torch's decorator would import the whole compiler to set the same mark."""
        if not allowed():
            return super().compile_time_constant(function)
        setattr(function, CONSTANT_MARK, True)
        return function

    def launch(self, plan: Launch, tensors: tuple[Tensor, ...], strides: tuple[int, ...]) -> None:
        """Run a Triton kernel, with a cache of compiled kernels. Triton inspects all arguments of a call to choose the
        compiled kernel, which takes longer than the kernel. Given the plan, the choice depends on the device, the
        strides and the 16-byte alignment of the tensors. These are the cache key. The cache is used only if the first
        launch by position of a kernel agrees with the launch as documented."""
        if not _KNOWS_LAUNCHES:
            super().launch(plan, tensors, strides)
            return
        pointers = [tensor.data_ptr() for tensor in tensors]
        key = (tensors[0].get_device(), strides, *[pointer % 16 == 0 for pointer in pointers])
        if key in plan.compiled:
            run, rest = plan.compiled[key]
            run(*pointers, *rest)  # pass addresses: for a tensor, Triton would query the driver
            return
        arguments = plan.kernel_arguments(strides)
        compiled = plan.kernel[plan.grid](*tensors, **arguments)
        if compiled is None or _agreements.get(id(plan.kernel)) is False:  # Triton's interpreter compiles nothing
            return
        names = list(inspect.signature(plan.kernel.fn).parameters)[len(tensors) :]
        run, rest = compiled[plan.grid], tuple(arguments[name] for name in names)
        if id(plan.kernel) not in _agreements:
            if tensors[0].is_cuda and torch.cuda.is_current_stream_capturing():  # values cannot be read in a capture
                return
            expected = [tensor.clone() for tensor in tensors]
            run(*pointers, *rest)
            _agreements[id(plan.kernel)] = all(map(_same_bits, tensors, expected))
            if not _agreements[id(plan.kernel)]:
                plan.kernel[plan.grid](*tensors, **arguments)
                warnings.warn(NOT_BY_POSITION, stacklevel=2)
                return
        plan.compiled[key] = run, rest


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


use_faster("splines", FastCalls)
