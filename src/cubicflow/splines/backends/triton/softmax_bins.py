# mypy: ignore-errors
# ruff: noqa: N803, N806, RET505, RUF005
"""The bins of splines whose widths and heights are separate softmaxes: all bins at once, or in chunks.

An axis is searched on two levels, chunks and the bins of one chunk. With CHUNK == 0 a thread holds all bins, and the
level of chunks is left out.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cubicflow.splines.backends.triton.bin import bin_sizes, search_position, softmax_scale
from cubicflow.splines.backends.triton.columns import (
    exponentials,
    find,
    flip,
    from_near_end,
    knot_grads,
    load_chunk,
    maximum,
    prefix_sums,
    select,
    shift,
    softmax_mean,
    softmax_weight,
    store_chunk,
    store_column,
    store_columns,
    sums_after,
    sums_before,
    tile_to_columns,
)
from cubicflow.splines.backends.triton.places import place_grads
from cubicflow.splines.backends.triton.unit import STEFFEN, exp_below


@triton.jit
def chunk_sums(params, chunks, START, K, CHUNK, CHUNKS, ACCESS, BLOCK):
    """Return the largest logit of an axis, and each chunk's sum of exponentials."""
    PADDED: tl.constexpr = triton.next_power_of_2(CHUNKS)
    dtype = params[0].dtype.element_ty
    index = tl.arange(0, PADDED)[:, None]
    top = tl.full((BLOCK,), -1e30, dtype)  # not -inf: -inf - -inf would be NaN
    sums = tl.zeros((PADDED, BLOCK), dtype)
    for c in range(chunks):
        first = tl.zeros((BLOCK,), tl.int32) + c * CHUNK
        logits = load_chunk(params, first, START, K, CHUNK, ACCESS, BLOCK)
        higher = tl.maximum(top, maximum(logits, CHUNK))
        exps = prefix_sums(exponentials(logits, higher, CHUNK), 1, CHUNK)
        lowered = sums * exp_below(top, higher)[None, :]
        sums = tl.where(index == c, exps[CHUNK - 1][None, :], lowered)
        top = higher
    return top, tile_to_columns(sums, PADDED, BLOCK)


@triton.jit
def softmax(params, columns, flipped, chunks, START, K, FLOOR, CHUNK, CHUNKS, ACCESS, BLOCK):
    """Return an axis: (the largest logit, parts, before, total, scale).

    `parts` are the exponentials of all bins, or the sums of all chunks, counted from the near end. `before` are the
    sums of the parts before each part, `total` is the sum of all parts, and `scale` turns exponentials into sizes.
    """
    if CHUNK == 0:
        logits = flip(columns, flipped, START, K)
        top = maximum(logits, K)
        parts = exponentials(logits, top, K)
        before, total = sums_before(parts, K)
    else:
        top, sums = chunk_sums(params, chunks, START, K, CHUNK, CHUNKS, ACCESS, BLOCK)
        parts = flip(sums, flipped, 0, CHUNKS)
        before, total = sums_before(parts, CHUNKS)
    return top, parts, before, total, softmax_scale(total, K, FLOOR)


@triton.jit
def held_exponentials(params, axis, first, flipped, START, K, CHUNK, ACCESS, BLOCK):
    """Return the exponentials of all bins, or of the chunk that starts at `first`, counted from the near end."""
    if CHUNK == 0:
        return axis[1]
    else:
        logits = load_chunk(params, first, START, K, CHUNK, ACCESS, BLOCK)
        return exponentials(flip(logits, flipped, 0, CHUNK), axis[0], CHUNK)


@triton.jit
def read_bin(params, axis, exps, chunk, inner, bin, flipped, START, K, CHUNK, CHUNKS, AFTER):
    """Return (before, after, size, down, up) of a bin as sums of exponentials, `after` only if AFTER.

    `exps` has the bin at `inner`. The bins down and up may be in other chunks.
    """
    if CHUNK == 0:
        sums = sums_after(exps, K) if AFTER else axis[2]
        before = select(axis[2], bin, 0, K)
        after = select(sums, bin, 0, K)
        size = select(exps, bin, 0, K)
        down = select(exps, bin, -1, K)
        up = select(exps, bin, 1, K)
    else:
        pointer, rows, stride = params
        before = select(axis[2], chunk, 0, CHUNKS) + select(sums_before(exps, CHUNK)[0], inner, 0, CHUNK)
        after = before
        if AFTER:
            after = select(sums_after(axis[1], CHUNKS), chunk, 0, CHUNKS)
            after += select(sums_after(exps, CHUNK), inner, 0, CHUNK)
        size = select(exps, inner, 0, CHUNK)
        lower = tl.minimum(tl.maximum(tl.where(flipped, K - bin, bin - 1), 0), K - 1)
        upper = tl.minimum(tl.maximum(tl.where(flipped, K - 2 - bin, bin + 1), 0), K - 1)
        down = exp_below(tl.load(pointer + (rows + (START + lower) * stride)), axis[0])
        up = exp_below(tl.load(pointer + (rows + (START + upper) * stride)), axis[0])
    return before, after, size, down, up


@triton.jit
def end_logits(params, columns, bin, flipped, K, SLOPES, CHUNK):
    """Return the slope parameters of the bin's two ends."""
    if CHUNK == 0:
        if SLOPES == STEFFEN:
            slopes = flip(columns, flipped, 2 * K, 2)
            return slopes[0], slopes[1]
        else:
            slopes = flip(columns, flipped, 2 * K, K + 1)
            return select(slopes, bin, 0, K + 1), select(slopes, bin, 1, K + 1)
    else:
        pointer, rows, stride = params
        if SLOPES == STEFFEN:
            low = tl.where(flipped, 1, 0)
            high = 1 - low
        else:
            low = tl.minimum(tl.maximum(tl.where(flipped, K - bin, bin), 0), K)
            high = tl.minimum(tl.maximum(tl.where(flipped, K - 1 - bin, bin + 1), 0), K)
        low_logit = tl.load(pointer + (rows + (2 * K + low) * stride))
        return low_logit, tl.load(pointer + (rows + (2 * K + high) * stride))


@triton.jit
def locate(
    near, flipped, params, columns, chunks, K, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, SLOPES, CHUNK, ACCESS, BLOCK
):
    """Return (bin, source, target, logits) as in ``bin.py``, and what :func:`store_grads` needs."""
    SOURCE: tl.constexpr = K if INVERSE else 0
    TARGET: tl.constexpr = K - SOURCE
    CHUNKS: tl.constexpr = 1 if CHUNK == 0 else (K + CHUNK - 1) // CHUNK
    axis = softmax(params, columns, flipped, chunks, SOURCE, K, FLOOR_SOURCE, CHUNK, CHUNKS, ACCESS, BLOCK)
    scale = axis[4]
    position = search_position(near, flipped)
    if CHUNK == 0:
        chunk = 0
        first = 0
        exps = axis[1]
        inner = find(position, axis[2], scale, FLOOR_SOURCE, 0, 1, K)
        bin = inner
    else:
        # If K is not a multiple of CHUNK, one chunk is incomplete. Counted from the upper end, that chunk is the first.
        # Its missing bins get negative numbers, and they start before every position.
        base = tl.where(flipped, K - CHUNKS * CHUNK, 0)
        chunk = find(position, axis[2], scale, FLOOR_SOURCE, base.to(position.dtype), CHUNK, CHUNKS)
        base += chunk * CHUNK
        first = tl.where(flipped, CHUNKS - 1 - chunk, chunk) * CHUNK
        exps = held_exponentials(params, axis, first, flipped, SOURCE, K, CHUNK, ACCESS, BLOCK)
        bins_before = shift(sums_before(exps, CHUNK)[0], select(axis[2], chunk, 0, CHUNKS), CHUNK)
        inner = find(position, bins_before, scale, FLOOR_SOURCE, base.to(position.dtype), 1, CHUNK)
        bin = base + inner
    raw = read_bin(params, axis, exps, chunk, inner, bin, flipped, SOURCE, K, CHUNK, CHUNKS, False)
    source = bin_sizes(bin, scale, FLOOR_SOURCE, raw, K)
    of_source = (axis, raw)

    axis = softmax(params, columns, flipped, chunks, TARGET, K, FLOOR_TARGET, CHUNK, CHUNKS, ACCESS, BLOCK)
    exps = held_exponentials(params, axis, first, flipped, TARGET, K, CHUNK, ACCESS, BLOCK)
    raw = read_bin(params, axis, exps, chunk, inner, bin, flipped, TARGET, K, CHUNK, CHUNKS, True)
    target = bin_sizes(bin, axis[4], FLOOR_TARGET, raw, K)
    logits = end_logits(params, columns, bin, flipped, K, SLOPES, CHUNK)
    return bin, source, target, logits, (of_source, (axis, raw))


@triton.jit
def logit_grads(exps, first, scale, mean, bin, grads, flipped, K, CHUNK, SIZE):
    """Return the gradients of the SIZE logits of an axis that start at `first`, given their exponentials."""
    out = ()
    for j in tl.static_range(SIZE):
        column = from_near_end(j, first, flipped, K, CHUNK)
        out = out + (scale * exps[j] * (softmax_weight(column, bin, grads) - mean),)
    return out


@triton.jit
def axis_grads(saved, bin, grads, flipped, K):
    """Return the gradients of all logits of an axis, in the order of params."""
    axis, raw = saved
    _, exps, _, total, scale = axis
    mean = softmax_mean(raw, total, grads)
    return flip(logit_grads(exps, 0, scale, mean, bin, grads, flipped, K, 0, K), flipped, 0, K)


@triton.jit
def store_axis_grads(out, exists, saved, bin, grads, flipped, params, chunks, START, K, CHUNK, DIMS, ACCESS, BLOCK):
    """Store the gradients of all logits of an axis, chunk by chunk."""
    axis, raw = saved
    top, _, _, total, scale = axis
    mean = softmax_mean(raw, total, grads)
    for c in range(chunks):
        first = c * CHUNK
        logits = load_chunk(params, tl.zeros((BLOCK,), tl.int32) + first, START, K, CHUNK, ACCESS, BLOCK)
        exps = exponentials(logits, top, CHUNK)
        chunk = logit_grads(exps, first, scale, mean, bin, grads, flipped, K, CHUNK, CHUNK)
        store_chunk(out, exists, chunk, first, START, K, CHUNK, DIMS, ACCESS, BLOCK)


@triton.jit
def store_grads(
    out, exists, saved, bin, grads, flipped, params, chunks, K, COUNT, INVERSE, SLOPES, CHUNK, DIMS, ACCESS, BLOCK
):
    """Store the gradients of all params. `out` is as in :func:`place_grads`. `grads` are those of the source, of the
    target and of the logits; with STEFFEN, those of the logits are 0 unless the bin is at that edge."""
    SOURCE: tl.constexpr = K if INVERSE else 0
    low, high = grads[2]
    if CHUNK == 0:
        of_source = axis_grads(saved[0], bin, grads[0], flipped, K)
        of_target = axis_grads(saved[1], bin, grads[1], flipped, K)
        if SLOPES == STEFFEN:
            of_slopes = flip((low, high), flipped, 0, 2)
        else:
            of_slopes = flip(knot_grads(0, bin, low, high, K + 1), flipped, 0, K + 1)
        of_axes = of_target + of_source if INVERSE else of_source + of_target
        out = place_grads(out, DIMS, COUNT, ACCESS, BLOCK)
        store_columns(out, exists, of_axes + of_slopes, COUNT, DIMS, ACCESS, BLOCK)
    else:
        out = place_grads(out, DIMS, COUNT, ACCESS, BLOCK)
        # fmt: off
        store_axis_grads(
            out, exists, saved[0], bin, grads[0], flipped, params, chunks, SOURCE, K, CHUNK, DIMS, ACCESS, BLOCK
        )
        store_axis_grads(
            out, exists, saved[1], bin, grads[1], flipped, params, chunks, K - SOURCE, K, CHUNK, DIMS, ACCESS, BLOCK
        )
        # fmt: on
        lower = tl.where(flipped, high, low)
        upper = tl.where(flipped, low, high)
        if SLOPES == STEFFEN:
            store_column(out, exists, lower, 2 * K, DIMS)
            store_column(out, exists, upper, 2 * K + 1, DIMS)
        else:
            where = tl.where(flipped, K - 1 - bin, bin)
            for c in range(chunks + (1 if K % CHUNK == 0 else 0)):
                chunk = knot_grads(c * CHUNK, where, lower, upper, CHUNK)
                store_chunk(out, exists, chunk, c * CHUNK, 2 * K, K + 1, CHUNK, DIMS, ACCESS, BLOCK)
