# mypy: ignore-errors
# ruff: noqa: N803, N806, RUF005
"""The bins of splines whose widths and heights are separate softmaxes, for many bins, read in chunks."""

from __future__ import annotations

import triton
import triton.language as tl

from cubicflow.splines.backends.triton.bin import bin_sizes, locate_ends, search_position, softmax_scale
from cubicflow.splines.backends.triton.chunk_memory import load_chunk, store_chunk
from cubicflow.splines.backends.triton.columns import (
    exponentials,
    find,
    flip,
    maximum,
    prefix_sums,
    select,
    softmax_mean,
    softmax_weight,
    sums_after,
    sums_before,
    tile_to_columns,
)
from cubicflow.splines.backends.triton.places import SHARED
from cubicflow.splines.backends.triton.unit import STEFFEN, exp_below


@triton.jit
def axis_sums(
    pointer,
    rows,
    stride,
    chunks,
    START: tl.constexpr,
    K: tl.constexpr,
    CHUNK: tl.constexpr,
    PADDED: tl.constexpr,
    ACCESS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return the largest logit of an axis, and each chunk's sum of exponentials."""
    dtype = pointer.dtype.element_ty
    index = tl.arange(0, PADDED)[:, None]
    top = tl.full((BLOCK,), -1e30, dtype)  # not -inf: -inf - -inf would be NaN
    sums = tl.zeros((PADDED, BLOCK), dtype)
    for c in range(chunks):
        first = tl.zeros((BLOCK,), tl.int32) + c * CHUNK
        logits = load_chunk(pointer, rows, stride, first, START, K, CHUNK, ACCESS, BLOCK)
        higher = tl.maximum(top, maximum(logits, CHUNK))
        exps = prefix_sums(exponentials(logits, higher, CHUNK), 1, CHUNK)
        lowered = sums * exp_below(top, higher)[None, :]
        sums = tl.where(index == c, exps[CHUNK - 1][None, :], lowered)
        top = higher
    return top, tile_to_columns(sums, PADDED, BLOCK)


@triton.jit
def shift(values, amount, SIZE: tl.constexpr):
    out = ()
    for j in tl.static_range(SIZE):
        out = out + (values[j] + amount,)
    return out


@triton.jit
def load_beside(pointer, rows, stride, bin, flipped, top, START: tl.constexpr, K: tl.constexpr):
    """Return the exponentials of the bins one down and one up. These bins may be in other chunks."""
    lower = tl.where(flipped, K - bin, bin - 1)
    upper = tl.where(flipped, K - 2 - bin, bin + 1)
    lower = tl.minimum(tl.maximum(lower, 0), K - 1)
    upper = tl.minimum(tl.maximum(upper, 0), K - 1)
    down = tl.load(pointer + (rows + (START + lower) * stride))
    up = tl.load(pointer + (rows + (START + upper) * stride))
    return exp_below(down, top), exp_below(up, top)


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
    """Return the arguments of ``bin.evaluate``, and the saved values of ``params_backward``."""
    ends = locate_ends(x, DOMAIN)
    flipped = ends[2]
    position = search_position(ends[0], flipped)
    SOURCE: tl.constexpr = K if INVERSE else 0
    TARGET: tl.constexpr = 0 if INVERSE else K
    CHUNKS: tl.constexpr = (K + CHUNK - 1) // CHUNK
    PADDED: tl.constexpr = triton.next_power_of_2(CHUNKS)

    source_top, sums = axis_sums(pointer, rows, stride, chunks, SOURCE, K, CHUNK, PADDED, ACCESS, BLOCK)
    source_before, source_total = sums_before(flip(sums, flipped, 0, CHUNKS), CHUNKS)
    target_top, sums = axis_sums(pointer, rows, stride, chunks, TARGET, K, CHUNK, PADDED, ACCESS, BLOCK)
    sums = flip(sums, flipped, 0, CHUNKS)
    target_before, target_total = sums_before(sums, CHUNKS)
    target_after = sums_after(sums, CHUNKS)
    source_scale = softmax_scale(source_total, K, FLOOR_SOURCE)
    target_scale = softmax_scale(target_total, K, FLOOR_TARGET)

    # If K is not a multiple of CHUNK, one chunk is incomplete. Counted from the upper end, that chunk is the first. Its
    # missing bins get negative numbers, and they start before every position.
    dtype = position.dtype
    lacking = tl.where(flipped, CHUNKS * CHUNK - K, 0)
    found = tl.zeros_like(position).to(tl.int32)
    for c in tl.static_range(1, CHUNKS):
        bins_before = (c * CHUNK - lacking).to(dtype)
        found = tl.where(source_scale * source_before[c] + bins_before * FLOOR_SOURCE <= position, c, found)
    base = found * CHUNK - lacking
    first = tl.where(flipped, CHUNKS - 1 - found, found) * CHUNK

    logits = flip(load_chunk(pointer, rows, stride, first, SOURCE, K, CHUNK, ACCESS, BLOCK), flipped, 0, CHUNK)
    exps = exponentials(logits, source_top, CHUNK)
    before, _ = sums_before(exps, CHUNK)
    before = shift(before, select(source_before, found, 0, CHUNKS), CHUNK)
    inner = find(position, before, source_scale, FLOOR_SOURCE, base.to(dtype), CHUNK)
    bin = base + inner
    down, up = load_beside(pointer, rows, stride, bin, flipped, source_top, SOURCE, K)
    before_bin = select(before, inner, 0, CHUNK)
    raw = (before_bin, before_bin, select(exps, inner, 0, CHUNK), down, up)  # the source's sum after the bin is unused
    source = bin_sizes(bin, source_scale, FLOOR_SOURCE, raw, K)
    source_axis = (source_top, raw, source_total, source_scale)

    logits = flip(load_chunk(pointer, rows, stride, first, TARGET, K, CHUNK, ACCESS, BLOCK), flipped, 0, CHUNK)
    exps = exponentials(logits, target_top, CHUNK)
    before, _ = sums_before(exps, CHUNK)
    down, up = load_beside(pointer, rows, stride, bin, flipped, target_top, TARGET, K)
    before_bin = select(target_before, found, 0, CHUNKS) + select(before, inner, 0, CHUNK)
    after_bin = select(target_after, found, 0, CHUNKS) + select(sums_after(exps, CHUNK), inner, 0, CHUNK)
    raw = (before_bin, after_bin, select(exps, inner, 0, CHUNK), down, up)
    target = bin_sizes(bin, target_scale, FLOOR_TARGET, raw, K)
    target_axis = (target_top, raw, target_total, target_scale)

    if SLOPES == STEFFEN:
        low = tl.where(flipped, 1, 0)
        high = 1 - low
    else:
        low = tl.minimum(tl.maximum(tl.where(flipped, K - bin, bin), 0), K)
        high = tl.minimum(tl.maximum(tl.where(flipped, K - 1 - bin, bin + 1), 0), K)
    logits = (
        tl.load(pointer + (rows + (2 * K + low) * stride)),
        tl.load(pointer + (rows + (2 * K + high) * stride)),
    )
    return ends, bin, source, target, logits, (source_axis, target_axis)


@triton.jit
def axis_backward(
    pointer,
    rows,
    stride,
    chunks,
    out_pointer,
    out_rows,
    out_stride,
    exists,
    axis,
    bin,
    grads,
    flipped,
    START: tl.constexpr,
    K: tl.constexpr,
    CHUNK: tl.constexpr,
    DIMS: tl.constexpr,
    ACCESS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the gradients of one axis's logits."""
    top, raw, total, scale = axis
    mean = softmax_mean(raw, total, grads)
    for c in range(chunks):
        first = c * CHUNK
        logits = load_chunk(pointer, rows, stride, tl.zeros((BLOCK,), tl.int32) + first, START, K, CHUNK, ACCESS, BLOCK)
        exps = exponentials(logits, top, CHUNK)
        chunk = ()
        for j in tl.static_range(CHUNK):
            column = tl.where(flipped, (K - 1 - j) - first, j + first)
            chunk = chunk + (scale * exps[j] * (softmax_weight(column, bin, grads) - mean),)
        store_chunk(out_pointer, out_rows, out_stride, exists, chunk, first, START, K, CHUNK, DIMS, ACCESS, BLOCK)


@triton.jit
def params_backward(
    pointer,
    rows,
    stride,
    chunks,
    out_pointer,
    out_rows,
    out_stride,
    exists,
    saved,
    bin,
    grad_source,
    grad_target,
    grad_logits,
    flipped,
    K: tl.constexpr,
    INVERSE: tl.constexpr,
    SLOPES: tl.constexpr,
    CHUNK: tl.constexpr,
    DIMS: tl.constexpr,
    ACCESS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the gradients of all params."""
    # fmt: off
    axis_backward(
        pointer, rows, stride, chunks, out_pointer, out_rows, out_stride, exists, saved[0], bin, grad_source, flipped,
        K if INVERSE else 0, K, CHUNK, DIMS, ACCESS, BLOCK,
    )
    axis_backward(
        pointer, rows, stride, chunks, out_pointer, out_rows, out_stride, exists, saved[1], bin, grad_target, flipped,
        0 if INVERSE else K, K, CHUNK, DIMS, ACCESS, BLOCK,
    )
    # fmt: on
    low = tl.where(flipped, grad_logits[1], grad_logits[0])
    high = tl.where(flipped, grad_logits[0], grad_logits[1])
    if SLOPES == STEFFEN:  # low and high are 0 unless the bin is at that edge
        edges = (low, high)
        for j in tl.static_range(2):
            if DIMS == SHARED:
                tl.store(out_pointer + 2 * K + j, tl.sum(edges[j], axis=0))
            else:
                tl.store(out_pointer + (out_rows + (2 * K + j) * out_stride), edges[j], mask=exists)
    else:
        where = tl.where(flipped, K - 1 - bin, bin)
        for c in range(chunks + (1 if K % CHUNK == 0 else 0)):
            first = c * CHUNK
            chunk = ()
            for j in tl.static_range(CHUNK):
                inner = tl.where(where == first + (j - 1), high, 0.0)
                chunk = chunk + (tl.where(where == first + j, low, inner),)
            store_chunk(
                out_pointer, out_rows, out_stride, exists, chunk, first, 2 * K, K + 1, CHUNK, DIMS, ACCESS, BLOCK
            )
