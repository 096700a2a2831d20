# mypy: ignore-errors
# ruff: noqa: N803, RET505
"""The two kernels: a spline, and its vector-Jacobian product.

A thread evaluates one element. With CHUNK == 0 it holds the whole spline in registers. Otherwise it reads the spline in
chunks of CHUNK bins and searches twice: it first sums each chunk in one pass over all params, then finds its element's
chunk among the sums, reads that chunk again and finds the bin. The backward pass visits all chunks again to write their
gradients. The number of chunks is a compile-time constant for the search. The loops take it at run time, as `chunks`,
because the compiler is slow at unrolling them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cubicflow.splines.backends.triton import quadratic_bins, softmax_bins
from cubicflow.splines.backends.triton.bin import evaluate, evaluate_backward, locate_ends
from cubicflow.splines.backends.triton.columns import load_columns
from cubicflow.splines.backends.triton.places import place_elements, place_params, place_values
from cubicflow.splines.backends.triton.unit import QUADRATIC

# The integers stay run-time values, so that a batch of another size runs the same kernel.
FORWARD_INTEGERS = ["chunks", "count", "splines", "size_1", "size_2", "stride_0", "stride_1", "stride_2", "stride_k"]
BACKWARD_INTEGERS = [*FORWARD_INTEGERS, "out_0", "out_1", "out_2", "out_k"]


@triton.jit
def locate(
    near, flipped, params, columns, chunks, K, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, SLOPES, CHUNK, ACCESS, BLOCK
):
    """Return the element's bin, its source, target and logits as in ``bin.py``, and what the gradients of params
    need."""
    if SLOPES == QUADRATIC:
        return quadratic_bins.locate(
            near, flipped, params, columns, chunks, K, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, CHUNK, ACCESS, BLOCK
        )
    else:
        return softmax_bins.locate(
            near, flipped, params, columns, chunks, K, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, SLOPES, CHUNK, ACCESS, BLOCK
        )


@triton.jit(do_not_specialize=FORWARD_INTEGERS)
def spline_forward(
    x_ptr, params_ptr, y_ptr, log_slope_ptr,
    count, splines, size_1, size_2, stride_0, stride_1, stride_2, stride_k, chunks,
    STRIDE_X: tl.constexpr, DIMS: tl.constexpr, ACCESS: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
    K: tl.constexpr, COUNT: tl.constexpr, FLOOR_SOURCE: tl.constexpr, FLOOR_TARGET: tl.constexpr,
    INVERSE: tl.constexpr, DOMAIN: tl.constexpr, SLOPES: tl.constexpr, STEPS: tl.constexpr,
    WIDTH: tl.constexpr, ROW: tl.constexpr, STEP: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    sizes = (count, splines, size_1, size_2)
    strides = (stride_0, stride_1, stride_2, stride_k)
    element, exists = place_elements(sizes, strides, DIMS, BLOCK)
    params = place_params(params_ptr, element, sizes, strides, DIMS, COUNT, ACCESS, BLOCK)
    place, _ = place_values(element, WIDTH, ROW, STEP, OFFSET)
    x = tl.load(x_ptr + place * STRIDE_X)
    columns = load_columns(params, COUNT, ACCESS, BLOCK) if CHUNK == 0 else ()
    ends = locate_ends(x, DOMAIN)
    bin, source, target, logits, _ = locate(
        ends[0], ends[2], params, columns, chunks, K, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, SLOPES, CHUNK, ACCESS, BLOCK
    )
    y, log_slope = evaluate(x, ends, bin, source, target, logits, K, INVERSE, DOMAIN, SLOPES, STEPS)
    tl.store(y_ptr + place, y, mask=exists)
    tl.store(log_slope_ptr + place, log_slope, mask=exists)


@triton.jit(do_not_specialize=BACKWARD_INTEGERS)
def spline_backward(
    x_ptr, params_ptr, grad_y_ptr, grad_log_slope_ptr, grad_x_ptr, grad_params_ptr,
    count, splines, size_1, size_2, stride_0, stride_1, stride_2, stride_k, out_0, out_1, out_2, out_k, chunks,
    STRIDE_X: tl.constexpr, STRIDE_GRAD_Y: tl.constexpr, STRIDE_GRAD_LOG_SLOPE: tl.constexpr,
    DIMS: tl.constexpr, ACCESS: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
    K: tl.constexpr, COUNT: tl.constexpr, FLOOR_SOURCE: tl.constexpr, FLOOR_TARGET: tl.constexpr,
    INVERSE: tl.constexpr, DOMAIN: tl.constexpr, SLOPES: tl.constexpr, STEPS: tl.constexpr,
    WIDTH: tl.constexpr, ROW: tl.constexpr, STEP: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    sizes = (count, splines, size_1, size_2)
    strides = (stride_0, stride_1, stride_2, stride_k)
    out_strides = (out_0, out_1, out_2, out_k)
    element, exists = place_elements(sizes, out_strides, DIMS, BLOCK)
    params = place_params(params_ptr, element, sizes, strides, DIMS, COUNT, ACCESS, BLOCK)
    place, sum_of_slopes = place_values(element, WIDTH, ROW, STEP, OFFSET)
    x = tl.load(x_ptr + place * STRIDE_X)
    columns = load_columns(params, COUNT, ACCESS, BLOCK) if CHUNK == 0 else ()
    grad_y = tl.load(grad_y_ptr + place * STRIDE_GRAD_Y, mask=exists, other=0.0)
    grad_log_slope = tl.load(grad_log_slope_ptr + sum_of_slopes * STRIDE_GRAD_LOG_SLOPE, mask=exists, other=0.0)
    ends = locate_ends(x, DOMAIN)
    flipped = ends[2]
    bin, source, target, logits, saved = locate(
        ends[0], flipped, params, columns, chunks, K, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, SLOPES, CHUNK, ACCESS, BLOCK
    )
    grad_x, grad_source, grad_target, grad_logits = evaluate_backward(
        x, ends, bin, source, target, logits, grad_y, grad_log_slope, K, INVERSE, DOMAIN, SLOPES, STEPS
    )
    grads = (grad_source, grad_target, grad_logits)
    tl.store(grad_x_ptr + place, grad_x, mask=exists)
    out = (grad_params_ptr, element, sizes, out_strides)
    if SLOPES == QUADRATIC:
        quadratic_bins.store_grads(
            out, exists, saved, bin, grads, flipped, params, chunks,
            K, COUNT, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, CHUNK, DIMS, ACCESS, BLOCK,
        )  # fmt: skip
    else:
        softmax_bins.store_grads(
            out, exists, saved, bin, grads, flipped, params, chunks,
            K, COUNT, INVERSE, SLOPES, CHUNK, DIMS, ACCESS, BLOCK,
        )  # fmt: skip
