# mypy: ignore-errors
# ruff: noqa: N803, RET505
"""Kernels for many bins. A thread reads its element's spline in chunks of a few bins, and searches twice.

A thread first sums each chunk of both axes, in one pass over all params. It then finds its element's chunk among the
sums, reads that chunk again and finds the bin, as in ``few_bins.py``. The backward pass visits all chunks again to
write their gradients. The number of chunks is a compile-time constant for the search. The loops take it at run time,
because the compiler is slow at unrolling them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cubicflow.splines.backends.triton import axis_chunks, quadratic_chunks
from cubicflow.splines.backends.triton.bin import evaluate, evaluate_backward
from cubicflow.splines.backends.triton.places import BACKWARD_INTEGERS, FORWARD_INTEGERS, SHARED, place, place_rows
from cubicflow.splines.backends.triton.unit import QUADRATIC


@triton.jit
def locate(
    x,
    pointer,
    rows,
    stride,
    chunks,
    K: tl.constexpr,
    FLOOR_SOURCE: tl.constexpr,
    FLOOR_TARGET: tl.constexpr,
    INVERSE: tl.constexpr,
    DOMAIN: tl.constexpr,
    SLOPES: tl.constexpr,
    CHUNK: tl.constexpr,
    ACCESS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return the arguments of ``bin.evaluate``, and the saved values of the backward pass."""
    if SLOPES == QUADRATIC:
        return quadratic_chunks.locate(
            x, pointer, rows, stride, chunks, K, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, DOMAIN, CHUNK, ACCESS, BLOCK
        )
    else:
        return axis_chunks.locate(
            x,
            pointer,
            rows,
            stride,
            chunks,
            K,
            FLOOR_SOURCE,
            FLOOR_TARGET,
            INVERSE,
            DOMAIN,
            SLOPES,
            CHUNK,
            ACCESS,
            BLOCK,
        )


@triton.jit(do_not_specialize=["chunks", *FORWARD_INTEGERS])
def chunks_forward(
    x_ptr,
    params_ptr,
    y_ptr,
    log_slope_ptr,
    count,
    chunks,
    splines,
    size_1,
    size_2,
    stride_0,
    stride_1,
    stride_2,
    stride_k,
    STRIDE_X: tl.constexpr,
    DIMS: tl.constexpr,
    K: tl.constexpr,
    COUNT: tl.constexpr,
    CHUNK: tl.constexpr,
    FLOOR_SOURCE: tl.constexpr,
    FLOOR_TARGET: tl.constexpr,
    INVERSE: tl.constexpr,
    DOMAIN: tl.constexpr,
    SLOPES: tl.constexpr,
    STEPS: tl.constexpr,
    ACCESS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    element, exists = place(count, splines, size_1, size_2, 0, 0, 0, 0, DIMS, BLOCK)
    pointer, rows = place_rows(
        params_ptr, element, count, splines, size_1, size_2, stride_0, stride_1, stride_2, DIMS, COUNT, ACCESS, BLOCK
    )
    x = tl.load(x_ptr + element * STRIDE_X)
    # fmt: off
    ends, bin, source, target, logits, _ = locate(
        x, pointer, rows, stride_k, chunks,
        K, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, DOMAIN, SLOPES, CHUNK, ACCESS, BLOCK,
    )
    # fmt: on
    y, log_slope = evaluate(x, ends, bin, source, target, logits, K, INVERSE, DOMAIN, SLOPES, STEPS)
    tl.store(y_ptr + element, y, mask=exists)
    tl.store(log_slope_ptr + element, log_slope, mask=exists)


@triton.jit(do_not_specialize=["chunks", *BACKWARD_INTEGERS])
def chunks_backward(
    x_ptr,
    params_ptr,
    grad_y_ptr,
    grad_log_slope_ptr,
    grad_x_ptr,
    grad_params_ptr,
    count,
    chunks,
    splines,
    size_1,
    size_2,
    stride_0,
    stride_1,
    stride_2,
    stride_k,
    out_0,
    out_1,
    out_2,
    out_k,
    STRIDE_X: tl.constexpr,
    STRIDE_GRAD_Y: tl.constexpr,
    STRIDE_GRAD_LOG_SLOPE: tl.constexpr,
    DIMS: tl.constexpr,
    K: tl.constexpr,
    COUNT: tl.constexpr,
    CHUNK: tl.constexpr,
    FLOOR_SOURCE: tl.constexpr,
    FLOOR_TARGET: tl.constexpr,
    INVERSE: tl.constexpr,
    DOMAIN: tl.constexpr,
    SLOPES: tl.constexpr,
    STEPS: tl.constexpr,
    ACCESS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    element, exists = place(count, splines, size_1, size_2, out_0, out_1, out_2, out_k, DIMS, BLOCK)
    pointer, rows = place_rows(
        params_ptr, element, count, splines, size_1, size_2, stride_0, stride_1, stride_2, DIMS, COUNT, ACCESS, BLOCK
    )
    x = tl.load(x_ptr + element * STRIDE_X)
    grad_y = tl.load(grad_y_ptr + element * STRIDE_GRAD_Y, mask=exists, other=0.0)
    grad_log_slope = tl.load(grad_log_slope_ptr + element * STRIDE_GRAD_LOG_SLOPE, mask=exists, other=0.0)
    # fmt: off
    ends, bin, source, target, logits, saved = locate(
        x, pointer, rows, stride_k, chunks,
        K, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, DOMAIN, SLOPES, CHUNK, ACCESS, BLOCK,
    )
    # fmt: on
    grad_x, grad_source, grad_target, grad_logits = evaluate_backward(
        x, ends, bin, source, target, logits, grad_y, grad_log_slope, K, INVERSE, DOMAIN, SLOPES, STEPS
    )
    tl.store(grad_x_ptr + element, grad_x, mask=exists)

    flipped = ends[2]
    if DIMS == SHARED:
        out_pointer = grad_params_ptr + tl.program_id(0).to(tl.int64) * COUNT
        out_rows = rows
    else:
        out_pointer, out_rows = place_rows(
            grad_params_ptr, element, count, splines, size_1, size_2, out_0, out_1, out_2, DIMS, COUNT, ACCESS, BLOCK
        )
    # fmt: off
    if SLOPES == QUADRATIC:
        quadratic_chunks.params_backward(
            pointer, rows, stride_k, chunks, out_pointer, out_rows, out_k, exists,
            saved, bin, grad_source, grad_target, grad_logits, flipped,
            K, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, CHUNK, DIMS, ACCESS, BLOCK,
        )
    else:
        axis_chunks.params_backward(
            pointer, rows, stride_k, chunks, out_pointer, out_rows, out_k, exists,
            saved, bin, grad_source, grad_target, grad_logits, flipped,
            K, INVERSE, SLOPES, CHUNK, DIMS, ACCESS, BLOCK,
        )
    # fmt: on
