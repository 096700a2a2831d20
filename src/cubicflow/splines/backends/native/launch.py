"""Turn tensors into calls of the library. The map from elements to params is planned once per combination of shapes."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from cubicflow.splines.backends.native.library import Call, Library, LoopAxis, group, load
from cubicflow.splines.domains import find_domain
from cubicflow.splines.families import find_family
from cubicflow.splines.spec import SplineSpec

Strides: TypeAlias = tuple[int, ...]


class PreparedCall(NamedTuple):
    """Everything that a call needs besides the addresses of its tensors."""

    call: Call
    address: int  # the address of ``call``
    work: int  # the number of params read


def forward(x: Tensor, params: Tensor, spec: SplineSpec) -> tuple[Tensor, Tensor]:
    """Return (y, log_slope). x has the shape of the output; params broadcast against x."""
    plan = make_plan(spec, x.dtype, x.shape, x.stride(), params.shape, params.stride(), None)
    y, log_slope = x.new_empty(x.shape), x.new_empty(x.shape)
    library = _library()
    start = plan.address, library.level, library.threads(plan.work), library.parallel
    tensors = x.data_ptr(), params.data_ptr(), y.data_ptr(), log_slope.data_ptr()
    _check(library.handle.cubicflow_forward(*start, *tensors))
    return y, log_slope


def backward(
    x: Tensor, params: Tensor, grad_y: Tensor, grad_log_slope: Tensor, spec: SplineSpec
) -> tuple[Tensor, Tensor]:
    """Return (grad_x, grad_params), with the shapes of x and params. grad_params has the memory layout of params."""
    grad_x, grad_params = x.new_empty(x.shape), torch.empty_like(params)
    grad_y, grad_log_slope = grad_y.contiguous(), grad_log_slope.contiguous()
    plan = make_plan(spec, x.dtype, x.shape, x.stride(), params.shape, params.stride(), grad_params.stride())
    library = _library()
    start = plan.address, library.level, library.threads(2 * plan.work), library.parallel
    tensors = x.data_ptr(), params.data_ptr(), grad_y.data_ptr(), grad_log_slope.data_ptr()
    _check(library.handle.cubicflow_backward(*start, *tensors, grad_x.data_ptr(), grad_params.data_ptr()))
    return grad_x, grad_params


@lru_cache(maxsize=4096)
def make_plan(
    spec: SplineSpec,
    dtype: torch.dtype,
    shape: torch.Size,
    x_strides: Strides,
    params_shape: torch.Size,
    params_strides: Strides,
    grad_strides: Strides | None,
) -> PreparedCall:
    """Return the plan of a call. ``grad_strides`` are the strides of the gradient of params, or None for a forward."""
    params_axes = _leading_strides(params_shape, params_strides, shape)
    grad_axes = params_axes if grad_strides is None else _leading_strides(params_shape, grad_strides, shape)
    out_strides = torch.empty(shape, device="meta").stride()
    axes = [LoopAxis(*axis) for axis in zip(shape, x_strides, params_axes, out_strides, grad_axes, strict=True)]
    # Elements along an axis that params lack share one spline. In a forward, elements along an expanded axis of params
    # share a spline too. In a backward they do not, because each index of an expanded axis has its own gradient.
    is_shared = [axis.params == 0 and axis.grad == 0 for axis in axes]
    rows, num_rows = group(axis for axis, shared in zip(axes, is_shared, strict=True) if not shared)
    others, num_shared = group(axis for axis, shared in zip(axes, is_shared, strict=True) if shared)
    library = _library()
    call = Call(
        num_bins=spec.num_bins,
        num_params=params_shape[-1],
        is_double=dtype == torch.float64,
        inverse=spec.inverse,
        domain=library.number(find_domain(spec.domain).kernel),
        kind=library.number(find_family(spec.family, spec.slopes).kernel),
        min_width=spec.min_bin_width,
        min_height=spec.min_bin_height,
        params_stride=params_strides[-1],
        grad_stride=1 if grad_strides is None else grad_strides[-1],
        num_rows=num_rows,
        num_shared=num_shared,
        rows=rows,
        shared=others,
    )
    # Finding the bin of one element in a shared spline costs about as much as reading forty params.
    work = num_rows * params_shape[-1] + (40 * shape.numel() if num_shared > 1 else 0)
    return PreparedCall(call, ctypes.addressof(call), work)


def _leading_strides(params_shape: torch.Size, strides: Strides, shape: torch.Size) -> Strides:
    """Return the strides of params along the output's axes. The stride is 0 for an axis that params lack or that has
    size 1 in params. An empty axis gets a stride of at least 1: with stride 0 it would count as shared, and the kernel
    would read params that do not exist."""
    sizes = zip(params_shape[:-1], strides[:-1], strict=True)
    own = tuple(0 if size == 1 else stride or int(size == 0) for size, stride in sizes)
    return (0,) * (len(shape) - len(own)) + own


def _library() -> Library:
    library = load()
    if isinstance(library, str):
        raise RuntimeError(library)  # noqa: TRY004
    return library


def _check(status: int) -> None:
    if status:
        raise MemoryError("not enough memory for the native spline kernel's scratch; free memory or use fewer threads")
