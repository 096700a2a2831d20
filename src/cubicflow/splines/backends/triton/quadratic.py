# mypy: ignore-errors
# ruff: noqa: N803, N806, RET505, RUF005
"""The bins of the quadratic spline, for few bins. Heights are areas under a density with given values at the knots:

    v_j = exp(param)                            A = sum of w_j (v_j + v_j+1) / 2
    d_j = uniform + (1 - uniform) v_j / A       h_j = w_j (d_j + d_j+1) / 2

as in ``splines/quadratic.py``. Everything is counted from the near end.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cubicflow.splines.backends.triton.bin import locate_ends, search_position
from cubicflow.splines.backends.triton.columns import (
    exponentials,
    find,
    flip,
    maximum,
    prefix_sums,
    select,
    softmax_axis,
    softmax_weight,
    sums_after,
    sums_before,
)
from cubicflow.splines.backends.triton.unit import divide


@triton.jit
def trapezoids(widths, values, K: tl.constexpr):
    """Return w_j (values_j + values_j+1) / 2 for all j."""
    out = ()
    for j in tl.static_range(K):
        out = out + (widths[j] * ((values[j] + values[j + 1]) * 0.5),)
    return out


@triton.jit
def read_axis(sizes, before, bin, K: tl.constexpr):
    """Return (before, after, size, down, up). The quadratic's slopes do not use down and up, so both are set to
    size."""
    size = select(sizes, bin, 0, K)
    return select(before, bin, 0, K), select(sums_after(sizes, K), bin, 0, K), size, size, size


@triton.jit
def locate(
    x,
    columns,
    K: tl.constexpr,
    FLOOR_SOURCE: tl.constexpr,
    FLOOR_TARGET: tl.constexpr,
    INVERSE: tl.constexpr,
    DOMAIN: tl.constexpr,
):
    """Return the arguments of ``bin.evaluate``, with the densities at the bin's ends as logits, and the saved values of
    ``params_backward``."""
    FLOOR: tl.constexpr = FLOOR_TARGET if INVERSE else FLOOR_SOURCE
    UNIFORM: tl.constexpr = K * (FLOOR_SOURCE if INVERSE else FLOOR_TARGET)
    ends = locate_ends(x, DOMAIN)
    flipped = ends[2]
    exps, _, total, scale = softmax_axis(columns, flipped, 0, K, FLOOR)
    widths = ()
    for j in tl.static_range(K):
        widths = widths + (scale * exps[j] + FLOOR,)
    logits = flip(columns, flipped, K, K + 1)
    vertices = exponentials(logits, maximum(logits, K + 1), K + 1)
    area = prefix_sums(trapezoids(widths, vertices, K), 1, K)[K - 1]
    share = divide(tl.full(area.shape, 1 - UNIFORM, area.dtype), area)
    densities = ()
    for j in tl.static_range(K + 1):
        densities = densities + (share * vertices[j] + UNIFORM,)
    heights = trapezoids(widths, densities, K)

    width_before, _ = sums_before(widths, K)
    height_before, _ = sums_before(heights, K)
    position = search_position(ends[0], flipped)
    bin = find(position, height_before if INVERSE else width_before, 1.0, 0.0, 0, K)
    width_axis = read_axis(widths, width_before, bin, K)
    height_axis = read_axis(heights, height_before, bin, K)
    logits = (select(densities, bin, 0, K + 1), select(densities, bin, 1, K + 1))
    saved = (widths, exps, total, scale, vertices, area, share, densities)
    if INVERSE:
        return ends, bin, height_axis, width_axis, logits, saved
    else:
        return ends, bin, width_axis, height_axis, logits, saved


@triton.jit
def params_backward(saved, bin, grad_source, grad_target, grad_logits, flipped, K: tl.constexpr, INVERSE: tl.constexpr):
    """Return the gradients of all params, in the order of params. The chain rule goes back through the heights, the
    densities and the area."""
    widths, exps, total, scale, vertices, area, share, densities = saved
    width_grads = grad_target if INVERSE else grad_source
    height_grads = grad_source if INVERSE else grad_target
    low, high = grad_logits

    of_heights = ()
    for j in tl.static_range(K):
        of_heights = of_heights + (softmax_weight(j, bin, height_grads),)
    of_densities = ()
    of_area = tl.zeros_like(area)
    for j in tl.static_range(K + 1):
        grad = tl.where(bin == j, low, tl.where(bin == j - 1, high, 0.0))
        if j > 0:
            grad += of_heights[j - 1] * widths[j - 1] * 0.5
        if j < K:
            grad += of_heights[j] * widths[j] * 0.5
        of_densities = of_densities + (grad,)
        of_area -= grad * vertices[j]
    of_area *= share / area

    of_widths = ()
    mean = tl.zeros_like(area)
    for j in tl.static_range(K):
        grad = softmax_weight(j, bin, width_grads) + of_heights[j] * ((densities[j] + densities[j + 1]) * 0.5)
        grad += of_area * ((vertices[j] + vertices[j + 1]) * 0.5)
        of_widths = of_widths + (grad,)
        mean += exps[j] * grad
    mean /= total
    width_logits = ()
    for j in tl.static_range(K):
        width_logits = width_logits + (scale * exps[j] * (of_widths[j] - mean),)

    vertex_logits = ()
    for j in tl.static_range(K + 1):
        beside = tl.zeros_like(area)
        if j > 0:
            beside += widths[j - 1] * 0.5
        if j < K:
            beside += widths[j] * 0.5
        vertex_logits = vertex_logits + (vertices[j] * (share * of_densities[j] + of_area * beside),)
    return flip(width_logits, flipped, 0, K) + flip(vertex_logits, flipped, 0, K + 1)
