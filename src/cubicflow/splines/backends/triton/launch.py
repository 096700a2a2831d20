"""Which kernel runs a call, and with which arguments."""

from __future__ import annotations

import inspect
import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from cubicflow.splines.backends.autograd import Pair
from cubicflow.splines.backends.triton import bin as element
from cubicflow.splines.backends.triton import chunks, few_bins, places, unit
from cubicflow.splines.calls import calls
from cubicflow.splines.cubic import FLOAT32_NEWTON_STEPS, NEWTON_STEPS
from cubicflow.splines.domains import find_domain
from cubicflow.splines.families import find_family
from cubicflow.splines.spec import SplineSpec

# Triton decides when a kernel is defined whether it will be compiled or interpreted.
INTERPRETED = not isinstance(few_bins.rows_forward, triton.JITFunction)

_NEWTON_STEPS = {torch.float32: FLOAT32_NEWTON_STEPS, torch.float64: NEWTON_STEPS}


class Tuning(NamedTuple):
    """How a kernel is run: the fastest of those tried on an H200. The numbers for params that are read one parameter at
    a time were chosen for the compiler's time, which grows with the square of how many reads there are in a kernel."""

    num_warps: int = 2  # of 32 elements; 0 takes all elements at once
    max_row_bins: int = 32  # more bins are read in chunks
    chunk: int = 32
    quadratic_chunk: int = 16  # not timed against others: with 32 a thread's registers do not hold it
    max_column_bins: int = 16
    column_chunk: int = 8

    def limits(self, packed: bool, family: str) -> tuple[int, int]:
        """The most bins that are not read in chunks, and the bins of a chunk."""
        if family == "quadratic":
            return self.max_row_bins, self.quadratic_chunk if packed else self.column_chunk
        return (self.max_row_bins, self.chunk) if packed else (self.max_column_bins, self.column_chunk)


# The interpreter's time goes by programs, not by elements.
DEFAULT = Tuning(num_warps=0) if INTERPRETED else Tuning()


def _most_interpreted(num_params: int, packed: bool) -> int:
    """Elements of a program in the interpreter. Packed params are a tile, which may have no more than 2^20 numbers."""
    return int(min(2**16, 2**20 // triton.next_power_of_2(num_params))) if packed else 2**16


def forward(x: Tensor, params: Tensor, spec: SplineSpec, tuning: Tuning = DEFAULT) -> Pair:
    x_even, stride_x = _even(x)
    y, log_slope = _new(x), _new(x)
    if x.numel() == 0:
        return y, log_slope
    plan = _plan(spec, x.dtype, x.shape, params.shape, params.stride(), None, tuning)
    if plan is None:
        return forward(x, params.expand(*x.shape, -1).contiguous(), spec, tuning)
    _launch(plan, (x_even, params, y, log_slope), (stride_x,))
    return y, log_slope


def backward(
    x: Tensor, params: Tensor, grad_y: Tensor, grad_log_slope: Tensor, spec: SplineSpec, tuning: Tuning = DEFAULT
) -> Pair:
    grad_x, grad_params = _new(x), torch.empty_like(params)
    if x.numel() == 0:
        return grad_x, grad_params.zero_()
    plan = _plan(spec, x.dtype, x.shape, params.shape, params.stride(), grad_params.stride(), tuning)
    if plan is None:
        grad_x, grads = backward(x, params.expand(*x.shape, -1).contiguous(), grad_y, grad_log_slope, spec, tuning)
        return grad_x, grad_params.copy_(grads.sum_to_size(params.shape))
    x, stride_x = _even(x)
    grad_y, stride_grad_y = _even(grad_y)
    grad_log_slope, stride_grad_log_slope = _even(grad_log_slope)
    # Of a shared spline each program leaves one row of sums, which are then added in an order that never changes.
    out = params.new_empty(plan.sums) if plan.sums else grad_params
    tensors = (x, params, grad_y, grad_log_slope, grad_x, out)
    _launch(plan, tensors, (stride_x, stride_grad_y, stride_grad_log_slope))
    if plan.sums:
        grad_params.copy_(out.sum(0).view(params.shape))
    return grad_x, grad_params


def _new(x: Tensor) -> Tensor:
    """An uninitialised tensor like x, with elements in order."""
    return torch.empty_like(x) if x.is_contiguous() else x.new_empty(x.shape)


def _even(tensor: Tensor) -> tuple[Tensor, int]:
    """A tensor that one stride walks, and the stride: 1, or 0 for one number expanded to a shape, as sum's gradient."""
    if tensor.is_contiguous():
        return tensor, 1
    if not any(tensor.stride()):
        return tensor, 0
    return tensor.contiguous(), 1


# --- launches ---------------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """All of a launch but its tensors and their strides."""

    kernel: Any
    grid: tuple[int, int, int]
    arguments: dict[str, Any]
    sums: tuple[int, ...]  # the shape of a shared spline's partial sums; empty where none is shared
    compiled: dict[Any, Any]  # of :class:`cubicflow.splines.calls.Launch`

    def named(self, strides: tuple[int, ...]) -> dict[str, Any]:
        """The kernel's arguments beside its tensors."""
        names = [name for name in inspect.signature(self.kernel.fn).parameters if name.startswith("STRIDE_")]
        return self.arguments | dict(zip(names, strides, strict=True))


def _launch(plan: Plan, tensors: tuple[Tensor, ...], strides: tuple[int, ...]) -> None:
    """Run a kernel on the device of its tensors; ``strides`` are those that the plan does not know."""
    device = tensors[0].get_device()
    if device >= 0 and device != torch.cuda.current_device():
        with torch.cuda.device(device):
            calls.launch(plan, tensors, strides)
    else:
        calls.launch(plan, tensors, strides)


# --- plans ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _plan(
    spec: SplineSpec,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    params_shape: tuple[int, ...],
    strides: tuple[int, ...],
    grad_strides: tuple[int, ...] | None,
    tuning: Tuning,
) -> Plan | None:
    """``grad_strides`` are those of the gradient of params, or None for a forward. None for params with more separate
    axes than the kernels take."""
    if math.prod(shape) >= 2**31:
        raise RuntimeError(f"the Triton kernels take fewer than 2^31 elements, got {math.prod(shape)}; split the batch")
    backward = grad_strides is not None
    num_params = params_shape[-1]
    missing = len(shape) + 1 - len(params_shape)
    own = (1,) * missing + params_shape[:-1]
    shared = backward and own != shape
    if shared:
        numbers = _shared_numbers(shape, own, (0,) * missing + strides)
    else:
        numbers = _numbers(shape, own, (0,) * missing + strides, (0,) * missing + (grad_strides or strides))
    if numbers is None:
        return None
    packed = not shared and numbers["DIMS"] == 1 and _packed(numbers, num_params, backward)
    most, chunk = tuning.limits(packed, spec.family)
    few = spec.num_bins <= most
    block = 32 * tuning.num_warps or triton.next_power_of_2(
        min(numbers["count"], _most_interpreted(num_params, packed))
    )
    blocks = -(-numbers["count"] // block)
    floors = (spec.min_bin_width, spec.min_bin_height)
    arguments = {
        **numbers,
        "K": spec.num_bins,
        "COUNT": num_params,
        "FLOOR_SOURCE": floors[spec.inverse],
        "FLOOR_TARGET": floors[not spec.inverse],
        "INVERSE": spec.inverse,
        "DOMAIN": getattr(element, str(find_domain(spec.domain).triton)).value,
        "SLOPES": getattr(unit, str(find_family(spec.family, spec.slopes).triton)).value,
        "STEPS": _NEWTON_STEPS[dtype],
        "WAY": (places.TILE if packed else places.COLUMNS).value,
        "BLOCK": block,
        "num_warps": max(1, tuning.num_warps),
    }
    if not backward:
        arguments = {name: value for name, value in arguments.items() if not name.startswith("out_")}
    if few:
        arguments["PADDED"] = triton.next_power_of_2(num_params)
        kernel = few_bins.rows_backward if backward else few_bins.rows_forward
    else:
        arguments |= {"CHUNK": chunk, "chunks": -(-spec.num_bins // chunk)}
        kernel = chunks.chunks_backward if backward else chunks.chunks_forward
    sums = (blocks, numbers["splines"], num_params) if shared else ()
    return Plan(kernel, (blocks * numbers["splines"], 1, 1), arguments, sums, {})


class Axis(NamedTuple):
    size: int
    strides: tuple[int, ...]


def _collapse(axes: list[Axis]) -> list[Axis]:
    """Neighbouring axes that one stride can walk, as one."""
    out: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        if out and all(a == b * axis.size for a, b in zip(out[-1].strides, axis.strides, strict=True)):
            out[-1] = Axis(out[-1].size * axis.size, axis.strides)
        else:
            out.append(axis)
    return out


def _numbers(
    shape: tuple[int, ...], own: tuple[int, ...], strides: tuple[int, ...], grad_strides: tuple[int, ...]
) -> dict[str, int] | None:
    """Elements that each have a spline of their own, or a forward, to which that is all the same."""
    pairs = [(0, 0) if size == 1 else pair for size, *pair in zip(own, strides, grad_strides, strict=False)]
    axes = _collapse([Axis(size, (pair[0], pair[1])) for size, pair in zip(shape, pairs, strict=True)])
    if len(axes) > 3:
        return None
    dims = max(1, len(axes))
    axes += [Axis(1, (0, 0))] * (3 - len(axes))
    return {
        "DIMS": dims,
        "count": math.prod(shape),
        "splines": 1,
        "size_1": axes[1].size,
        "size_2": axes[2].size,
        **{f"stride_{i}": axis.strides[0] for i, axis in enumerate(axes)},
        **{f"out_{i}": axis.strides[1] for i, axis in enumerate(axes)},
        "stride_k": strides[-1],
        "out_k": grad_strides[-1],
    }


def _packed(numbers: dict[str, int], num_params: int, backward: bool) -> bool:
    """Whether params, and their gradient, lie one after the other in the order of the elements."""
    names = ("stride", "out") if backward else ("stride",)
    alone = numbers["count"] == 1
    return all(numbers[f"{name}_k"] == 1 and (alone or numbers[f"{name}_0"] == num_params) for name in names)


def _shared_numbers(shape: tuple[int, ...], own: tuple[int, ...], strides: tuple[int, ...]) -> dict[str, int] | None:
    """The axes of the splines, and those of the elements that share one."""
    flat = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    every = list(zip(shape, own, flat, strides[:-1], strict=True))
    splines = _collapse([Axis(size, (stride, element)) for size, mine, element, stride in every if mine > 1])
    members = _collapse([Axis(size, (element,)) for size, mine, element, _ in every if mine == 1])
    if len(splines) > 2 or len(members) > 2:
        return None
    splines = [Axis(1, (0, 0))] * (2 - len(splines)) + splines
    members = [Axis(1, (0,))] * (2 - len(members)) + members
    return {
        "DIMS": places.SHARED.value,
        "count": members[0].size * members[1].size,
        "splines": splines[0].size * splines[1].size,
        "size_1": splines[1].size,
        "size_2": members[1].size,
        "stride_0": splines[0].strides[0],
        "stride_1": splines[1].strides[0],
        "stride_2": 0,
        "stride_k": strides[-1],
        "out_0": splines[0].strides[1],
        "out_1": splines[1].strides[1],
        "out_2": members[0].strides[0],
        "out_k": members[1].strides[0],
    }
