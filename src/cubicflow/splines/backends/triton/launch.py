"""Choose the kernel of a call and its arguments."""

from __future__ import annotations

import inspect
import math
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
import triton
from torch import Tensor

from cubicflow.splines.backends.autograd import Pair
from cubicflow.splines.backends.triton import bin as element
from cubicflow.splines.backends.triton import kernels, places, unit
from cubicflow.splines.calls import calls
from cubicflow.splines.cubic import FLOAT32_NEWTON_STEPS, NEWTON_STEPS
from cubicflow.splines.domains import find_domain
from cubicflow.splines.families import find_family
from cubicflow.splines.spec import SplineSpec

# Triton decides at the definition of a kernel whether the kernel is compiled or interpreted.
INTERPRETED = not isinstance(kernels.spline_forward, triton.JITFunction)

_NEWTON_STEPS = {torch.float32: FLOAT32_NEWTON_STEPS, torch.float64: NEWTON_STEPS}


class RowSlice(NamedTuple):
    """A slice of every row: ``WIDTH`` numbers of a row of ``ROW`` contiguous ones, from ``OFFSET`` on, ``STEP`` apart.
    The names are those of the kernels' arguments."""

    WIDTH: int
    ROW: int
    STEP: int
    OFFSET: int


EVERYTHING = RowSlice(0, 0, 0, 0)


class Tuning(NamedTuple):
    """The settings of a kernel. The defaults are the fastest settings tried on an H200.

    The settings ``max_column_bins`` and ``column_chunk``, for params that are read one parameter at a time, keep
    compile time short. Compile time grows with the square of the number of reads in a kernel.
    """

    num_warps: int = 2  # warps of 32 elements per program; 0 for as few programs as possible
    max_row_bins: int = 32  # bins; packed params with more bins are read in chunks
    chunk: int = 32  # bins per chunk of packed params
    max_column_bins: int = 16  # bins; params that are read one at a time and have more bins are read in chunks
    column_chunk: int = 8  # bins per chunk of params that are read one at a time

    def bins_per_chunk(self, num_bins: int, packed: bool, family: str) -> int:
        """Return the number of bins per chunk, or 0 if the bins are not read in chunks."""
        if num_bins <= (self.max_row_bins if packed or family == "quadratic" else self.max_column_bins):
            return 0
        if not packed:
            return self.column_chunk
        # A chunk of a quadratic has two numbers a bin in registers at a time: 32 bins would not fit.
        return self.chunk // 2 if family == "quadratic" else self.chunk


# The interpreter's time is proportional to the number of programs, not of elements.
DEFAULT = Tuning(num_warps=0) if INTERPRETED else Tuning()


def forward(x: Tensor, params: Tensor, spec: SplineSpec, tuning: Tuning = DEFAULT) -> Pair:
    x_one_stride, stride_x = _with_one_stride(x)
    y, log_slope = (torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(2))
    if x.numel() == 0:
        return y, log_slope
    plan = _plan(spec, x.dtype, x.shape, params.shape, params.stride(), None, tuning)
    if plan is None:
        return forward(x, params.expand(*x.shape, -1).contiguous(), spec, tuning)
    _launch(plan, (x_one_stride, params, y, log_slope), (stride_x,))
    return y, log_slope


def backward(
    x: Tensor, params: Tensor, grad_y: Tensor, grad_log_slope: Tensor, spec: SplineSpec, tuning: Tuning = DEFAULT
) -> Pair:
    grad_x, grad_params = torch.empty_like(x, memory_format=torch.contiguous_format), torch.empty_like(params)
    if x.numel() == 0:
        return grad_x, grad_params.zero_()
    plan = _plan(spec, x.dtype, x.shape, params.shape, params.stride(), grad_params.stride(), tuning)
    if plan is None:
        grad_x, grads = backward(x, params.expand(*x.shape, -1).contiguous(), grad_y, grad_log_slope, spec, tuning)
        return grad_x, grad_params.copy_(grads.sum_to_size(params.shape))
    grads = _gradients(plan, x, params, (grad_y, grad_log_slope), grad_x, grad_params)
    return grad_x, grads if grads.stride() == grad_params.stride() else grad_params.copy_(grads)


def forward_of_slice(x: Tensor, params: Tensor, spec: SplineSpec, part: slice, y: Tensor, log_slope: Tensor) -> None:
    """Write the results of a slice of the columns of x, (N, D), into the same slice of y and log_slope. All three are
    contiguous. There is a spline for each element of the slice, (N, n, P), or one for each of its columns, (n, P)."""
    _launch(_plan_of_slice(x, params, spec, part, None), (x, params, y, log_slope), (1,))


def backward_of_slice(
    x: Tensor, params: Tensor, spec: SplineSpec, part: slice, grad_y: Tensor, grad_log_det: Tensor, grad_x: Tensor
) -> Tensor:
    """Write the gradient of a slice of x, and return that of the params. ``grad_log_det``, (N,), is the gradient of the
    sum of a row's log-slopes."""
    grad_params = torch.empty_like(params)
    plan = _plan_of_slice(x, params, spec, part, grad_params.stride())
    return _gradients(plan, x, params, (grad_y, grad_log_det), grad_x, grad_params)


def _plan_of_slice(
    x: Tensor, params: Tensor, spec: SplineSpec, part: slice, grad_strides: tuple[int, ...] | None
) -> Plan:
    start, stop, step = part.indices(x.shape[1])
    place = RowSlice(len(range(start, stop, step)), x.shape[1], step, start)
    shape = (len(x), place.WIDTH)
    plan = _plan(spec, x.dtype, shape, params.shape, params.stride(), grad_strides, DEFAULT, place)
    return cast("Plan", plan)  # two axes always have a plan


def _gradients(plan: Plan, x: Tensor, params: Tensor, grads: Pair, grad_x: Tensor, grad_params: Tensor) -> Tensor:
    """Write the gradient of x, and return that of the params."""
    (x, stride_x), (grad_y, stride_grad_y), (grad_log_slope, stride_grad_log_slope) = map(_with_one_stride, (x, *grads))
    # For a shared spline each program writes one row of sums. The rows are then added in a fixed order.
    out = params.new_empty(plan.sums) if plan.sums else grad_params
    tensors = (x, params, grad_y, grad_log_slope, grad_x, out)
    _launch(plan, tensors, (stride_x, stride_grad_y, stride_grad_log_slope))
    return out.sum(0).view(params.shape) if plan.sums else grad_params


def _with_one_stride(tensor: Tensor) -> tuple[Tensor, int]:
    """Return the tensor in a layout with one stride, and that stride. The stride is 1, or 0 for one number expanded to
    a shape, such as the gradient of a sum."""
    if tensor.is_contiguous():
        return tensor, 1
    if not any(tensor.stride()):
        return tensor, 0
    return tensor.contiguous(), 1


# --- launches ---------------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """Everything about a launch except its tensors and their strides."""

    kernel: Any
    grid: tuple[int, int, int]
    arguments: dict[str, Any]
    sums: tuple[int, ...]  # the shape of the partial sums of shared splines; empty if no spline is shared
    compiled: dict[Any, Any]  # the cache of :class:`cubicflow.splines.calls.Launch`

    def kernel_arguments(self, strides: tuple[int, ...]) -> dict[str, Any]:
        """Return the kernel's keyword arguments, given the strides of its tensors."""
        names = [name for name in inspect.signature(self.kernel.fn).parameters if name.startswith("STRIDE_")]
        return self.arguments | dict(zip(names, strides, strict=True))


def _launch(plan: Plan, tensors: tuple[Tensor, ...], strides: tuple[int, ...]) -> None:
    """Run a kernel on the device of its tensors. ``strides`` are the strides that the plan does not contain."""
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
    part: RowSlice = EVERYTHING,
) -> Plan | None:
    """Return the plan of a launch, or None if params have more separate axes than the kernels support.

    ``grad_strides`` are the strides of the gradient of params, or None for a forward. ``part`` is the slice of rows
    that has this shape.
    """
    if math.prod(shape) >= 2**31:
        raise RuntimeError(f"the Triton kernels take fewer than 2^31 elements, got {math.prod(shape)}; split the batch")
    backward = grad_strides is not None
    num_params = params_shape[-1]
    missing = len(shape) + 1 - len(params_shape)
    own = (1,) * missing + params_shape[:-1]
    shared = backward and own != shape
    if shared:
        integers = _shared_integers(shape, own, (0,) * missing + strides)
    else:
        integers = _own_integers(shape, own, (0,) * missing + strides, (0,) * missing + (grad_strides or strides))
    if integers is None:
        return None
    packed = not shared and integers["DIMS"] == 1 and _packed(integers, num_params, backward)
    chunk = tuning.bins_per_chunk(spec.num_bins, packed, spec.family)
    # In the interpreter packed params are a tile, and Triton limits a tile to 2^20 numbers.
    most = min(2**16, 2**20 // triton.next_power_of_2(num_params)) if packed else 2**16
    block = 32 * tuning.num_warps or triton.next_power_of_2(min(integers["count"], most))
    blocks = -(-integers["count"] // block)
    floors = (spec.min_bin_width, spec.min_bin_height)
    arguments = {
        **integers,
        "chunks": -(-spec.num_bins // chunk) if chunk else 0,
        "CHUNK": chunk,
        "K": spec.num_bins,
        "COUNT": num_params,
        "FLOOR_SOURCE": floors[spec.inverse],
        "FLOOR_TARGET": floors[not spec.inverse],
        "INVERSE": spec.inverse,
        "DOMAIN": getattr(element, str(find_domain(spec.domain).kernel)).value,
        "SLOPES": getattr(unit, str(find_family(spec.family, spec.slopes).kernel)).value,
        "STEPS": _NEWTON_STEPS[dtype],
        "ACCESS": (places.TILE if packed else places.COLUMNS).value,
        "BLOCK": block,
        **part._asdict(),
        "num_warps": max(1, tuning.num_warps),
    }
    if not backward:
        arguments = {name: value for name, value in arguments.items() if not name.startswith("out_")}
    kernel = kernels.spline_backward if backward else kernels.spline_forward
    sums = (blocks, integers["splines"], num_params) if shared else ()
    return Plan(kernel, (blocks * integers["splines"], 1, 1), arguments, sums, {})


class StridedAxis(NamedTuple):
    size: int
    strides: tuple[int, ...]


def _collapse(axes: list[StridedAxis]) -> list[StridedAxis]:
    """Merge neighbouring axes that can be walked with one stride."""
    out: list[StridedAxis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        if out and all(a == b * axis.size for a, b in zip(out[-1].strides, axis.strides, strict=True)):
            out[-1] = StridedAxis(out[-1].size * axis.size, axis.strides)
        else:
            out.append(axis)
    return out


def _own_integers(
    shape: tuple[int, ...], own: tuple[int, ...], strides: tuple[int, ...], grad_strides: tuple[int, ...]
) -> dict[str, int] | None:
    """Return the integer arguments of a call in which each element has its own spline. A forward also uses them for
    shared splines. Return None if there are too many axes."""
    pairs = [(0, 0) if size == 1 else pair for size, *pair in zip(own, strides, grad_strides, strict=False)]
    axes = _collapse([StridedAxis(size, (pair[0], pair[1])) for size, pair in zip(shape, pairs, strict=True)])
    if len(axes) > 3:
        return None
    dims = max(1, len(axes))
    axes += [StridedAxis(1, (0, 0))] * (3 - len(axes))
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


def _packed(integers: dict[str, int], num_params: int, backward: bool) -> bool:
    """Return whether params, and in a backward their gradient, are contiguous in the order of the elements."""
    names = ("stride", "out") if backward else ("stride",)
    alone = integers["count"] == 1
    return all(integers[f"{name}_k"] == 1 and (alone or integers[f"{name}_0"] == num_params) for name in names)


def _shared_integers(shape: tuple[int, ...], own: tuple[int, ...], strides: tuple[int, ...]) -> dict[str, int] | None:
    """Return the integer arguments of a backward over shared splines: the axes of the splines, and the axes of the
    elements that share a spline. Return None if there are too many axes."""
    flat = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    every = list(zip(shape, own, flat, strides[:-1], strict=True))
    splines = _collapse([StridedAxis(size, (stride, element)) for size, mine, element, stride in every if mine > 1])
    members = _collapse([StridedAxis(size, (element,)) for size, mine, element, _ in every if mine == 1])
    if len(splines) > 2 or len(members) > 2:
        return None
    splines = [StridedAxis(1, (0, 0))] * (2 - len(splines)) + splines
    members = [StridedAxis(1, (0,))] * (2 - len(members)) + members
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
