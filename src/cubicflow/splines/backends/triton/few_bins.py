# mypy: ignore-errors
# ruff: noqa: N803, RET505, RUF005
"""Kernels for few bins. One thread holds the whole spline of its element."""

from __future__ import annotations

import triton
import triton.language as tl

from cubicflow.splines.backends.triton import quadratic
from cubicflow.splines.backends.triton.bin import (
    bin_sizes,
    evaluate,
    evaluate_backward,
    locate_ends,
    search_position,
)
from cubicflow.splines.backends.triton.columns import (
    find,
    flip,
    load_columns,
    select,
    softmax_axis,
    softmax_mean,
    softmax_weight,
    store_columns,
    store_sums,
    sums_after,
)
from cubicflow.splines.backends.triton.places import BACKWARD_INTEGERS, FORWARD_INTEGERS, SHARED, place, place_rows
from cubicflow.splines.backends.triton.unit import QUADRATIC, STEFFEN


@triton.jit
def read_axis(exps, before, after, bin, K: tl.constexpr):
    """Return (before, after, size, down, up) as sums of exponentials."""
    sums = (select(before, bin, 0, K), select(after, bin, 0, K))
    return sums + (select(exps, bin, 0, K), select(exps, bin, -1, K), select(exps, bin, 1, K))


@triton.jit
def locate(
    x,
    columns,
    K: tl.constexpr,
    COUNT: tl.constexpr,
    FLOOR_SOURCE: tl.constexpr,
    FLOOR_TARGET: tl.constexpr,
    INVERSE: tl.constexpr,
    DOMAIN: tl.constexpr,
    SLOPES: tl.constexpr,
):
    """Return the arguments of ``bin.evaluate``, and the saved values of ``params_backward``."""
    if SLOPES == QUADRATIC:
        return quadratic.locate(x, columns, K, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, DOMAIN)
    else:
        ends = locate_ends(x, DOMAIN)
        flipped = ends[2]
        exps, before, total, scale = softmax_axis(columns, flipped, K if INVERSE else 0, K, FLOOR_SOURCE)
        bin = find(search_position(ends[0], flipped), before, scale, FLOOR_SOURCE, 0, K)
        raw = read_axis(exps, before, before, bin, K)  # the source's sum after the bin is unused
        source = bin_sizes(bin, scale, FLOOR_SOURCE, raw, K)
        source_axis = (exps, raw, total, scale)
        exps, before, total, scale = softmax_axis(columns, flipped, 0 if INVERSE else K, K, FLOOR_TARGET)
        raw = read_axis(exps, before, sums_after(exps, K), bin, K)
        target = bin_sizes(bin, scale, FLOOR_TARGET, raw, K)
        target_axis = (exps, raw, total, scale)
        slopes = flip(columns, flipped, 2 * K, COUNT - 2 * K)
        if SLOPES == STEFFEN:
            logits = (slopes[0], slopes[1])
        else:
            logits = (select(slopes, bin, 0, K + 1), select(slopes, bin, 1, K + 1))
        return ends, bin, source, target, logits, (source_axis, target_axis)


@triton.jit
def axis_backward(axis, bin, grads, flipped, K: tl.constexpr):
    """Return the gradients of one axis's logits, in the order of params."""
    exps, raw, total, scale = axis
    mean = softmax_mean(raw, total, grads)
    ordered = ()
    for j in tl.static_range(K):
        ordered = ordered + (scale * exps[j] * (softmax_weight(j, bin, grads) - mean),)
    return flip(ordered, flipped, 0, K)


@triton.jit
def slopes_backward(bin, grads, flipped, K: tl.constexpr, SLOPES: tl.constexpr):
    low, high = grads
    if SLOPES == STEFFEN:  # low and high are 0 unless the bin is at that edge
        return flip((low, high), flipped, 0, 2)
    else:
        ordered = ()
        for j in tl.static_range(K + 1):
            ordered = ordered + (tl.where(bin == j, low, tl.where(bin == j - 1, high, 0.0)),)
        return flip(ordered, flipped, 0, K + 1)


@triton.jit
def params_backward(
    saved,
    bin,
    grad_source,
    grad_target,
    grad_logits,
    flipped,
    K: tl.constexpr,
    INVERSE: tl.constexpr,
    SLOPES: tl.constexpr,
):
    """Return the gradients of all params, in the order of params."""
    if SLOPES == QUADRATIC:
        return quadratic.params_backward(saved, bin, grad_source, grad_target, grad_logits, flipped, K, INVERSE)
    else:
        of_source = axis_backward(saved[0], bin, grad_source, flipped, K)
        of_target = axis_backward(saved[1], bin, grad_target, flipped, K)
        of_slopes = slopes_backward(bin, grad_logits, flipped, K, SLOPES)
        if INVERSE:
            return of_target + of_source + of_slopes
        else:
            return of_source + of_target + of_slopes


@triton.jit(do_not_specialize=FORWARD_INTEGERS)
def rows_forward(
    x_ptr,
    params_ptr,
    y_ptr,
    log_slope_ptr,
    count,
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
    PADDED: tl.constexpr,
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
    columns = load_columns(pointer, rows, stride_k, PADDED, COUNT, ACCESS, BLOCK)
    ends, bin, source, target, logits, _ = locate(
        x, columns, K, COUNT, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, DOMAIN, SLOPES
    )
    y, log_slope = evaluate(x, ends, bin, source, target, logits, K, INVERSE, DOMAIN, SLOPES, STEPS)
    tl.store(y_ptr + element, y, mask=exists)
    tl.store(log_slope_ptr + element, log_slope, mask=exists)


@triton.jit(do_not_specialize=BACKWARD_INTEGERS)
def rows_backward(
    x_ptr,
    params_ptr,
    grad_y_ptr,
    grad_log_slope_ptr,
    grad_x_ptr,
    grad_params_ptr,
    count,
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
    PADDED: tl.constexpr,
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
    columns = load_columns(pointer, rows, stride_k, PADDED, COUNT, ACCESS, BLOCK)
    grad_y = tl.load(grad_y_ptr + element * STRIDE_GRAD_Y, mask=exists, other=0.0)
    grad_log_slope = tl.load(grad_log_slope_ptr + element * STRIDE_GRAD_LOG_SLOPE, mask=exists, other=0.0)
    ends, bin, source, target, logits, saved = locate(
        x, columns, K, COUNT, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, DOMAIN, SLOPES
    )
    grad_x, grad_source, grad_target, grad_logits = evaluate_backward(
        x, ends, bin, source, target, logits, grad_y, grad_log_slope, K, INVERSE, DOMAIN, SLOPES, STEPS
    )
    tl.store(grad_x_ptr + element, grad_x, mask=exists)
    grads = params_backward(saved, bin, grad_source, grad_target, grad_logits, ends[2], K, INVERSE, SLOPES)
    if DIMS == SHARED:
        store_sums(grad_params_ptr + tl.program_id(0).to(tl.int64) * COUNT, grads, COUNT)
    else:
        pointer, rows = place_rows(
            grad_params_ptr, element, count, splines, size_1, size_2, out_0, out_1, out_2, DIMS, COUNT, ACCESS, BLOCK
        )
        store_columns(pointer, rows, out_k, exists, grads, PADDED, COUNT, ACCESS, BLOCK)
