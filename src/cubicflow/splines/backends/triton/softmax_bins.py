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
def axis_parts(params, columns, flipped, chunks, START, K, CHUNK, CHUNKS, ACCESS, BLOCK):
    """Return an axis: (the largest logit, parts, before, total).

    `parts` are the exponentials of all bins, or the sums of all chunks, counted from the near end. `before` are the
    sums of the parts before each part, and `total` is the sum of all parts.
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
    return top, parts, before, total


@triton.jit
def load_exponentials(params, axis, first, flipped, START, K, CHUNK, ACCESS, BLOCK):
    """Return the exponentials of the chunk that starts at `first`, counted from the near end."""
    logits = flip(load_chunk(params, first, START, K, CHUNK, ACCESS, BLOCK), flipped, 0, CHUNK)
    return exponentials(logits, axis[0], CHUNK)


@triton.jit
def load_one(params, index, flipped, START, SIZE):
    """Return one of the SIZE logits whose params start at START. `index` is counted from the near end, and clamped."""
    pointer, rows, stride = params
    at = tl.minimum(tl.maximum(tl.where(flipped, SIZE - 1 - index, index), 0), SIZE - 1)
    return tl.load(pointer + (rows + (START + at) * stride))


@triton.jit
def load_beside(params, axis, bin, flipped, START, K):
    """Return the exponentials of the bins one down and one up. These bins may be in other chunks."""
    down = load_one(params, bin - 1, flipped, START, K)
    up = load_one(params, bin + 1, flipped, START, K)
    return exp_below(down, axis[0]), exp_below(up, axis[0])


@triton.jit
def read_bin(axis, after, bin, K):
    """Return (before, after, size, down, up) of a bin as sums of exponentials."""
    sums = (select(axis[2], bin, 0, K), select(after, bin, 0, K))
    return sums + (select(axis[1], bin, 0, K), select(axis[1], bin, -1, K), select(axis[1], bin, 1, K))


@triton.jit
def end_logits(params, columns, bin, flipped, K, SLOPES, CHUNK):
    """Return the slope parameters of the bin's two ends."""
    SIZE: tl.constexpr = 2 if SLOPES == STEFFEN else K + 1
    if CHUNK == 0:
        slopes = flip(columns, flipped, 2 * K, SIZE)
        return slopes if SLOPES == STEFFEN else (select(slopes, bin, 0, SIZE), select(slopes, bin, 1, SIZE))
    else:
        low = 0 if SLOPES == STEFFEN else bin
        return load_one(params, low, flipped, 2 * K, SIZE), load_one(params, low + 1, flipped, 2 * K, SIZE)


@triton.jit
def locate(
    near, flipped, params, columns, chunks, K, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, SLOPES, CHUNK, ACCESS, BLOCK
):
    """Return (bin, source, target, logits) as in ``bin.py``, and what :func:`store_grads` needs."""
    SOURCE: tl.constexpr = K if INVERSE else 0
    TARGET: tl.constexpr = K - SOURCE
    CHUNKS: tl.constexpr = 1 if CHUNK == 0 else (K + CHUNK - 1) // CHUNK
    position = search_position(near, flipped)
    source_axis = axis_parts(params, columns, flipped, chunks, SOURCE, K, CHUNK, CHUNKS, ACCESS, BLOCK)
    if CHUNK == 0:
        scale = softmax_scale(source_axis[3], K, FLOOR_SOURCE)
        bin = find(position, source_axis[2], scale, FLOOR_SOURCE, 0, K)
        raw = read_bin(source_axis, source_axis[2], bin, K)  # the source's sum after the bin is unused
        source = bin_sizes(bin, scale, FLOOR_SOURCE, raw, K)
        of_source = (source_axis, raw, scale)
        target_axis = axis_parts(params, columns, flipped, chunks, TARGET, K, CHUNK, CHUNKS, ACCESS, BLOCK)
        scale = softmax_scale(target_axis[3], K, FLOOR_TARGET)
        raw = read_bin(target_axis, sums_after(target_axis[1], K), bin, K)
    else:
        # The target is summed before the search: in the other order the compiler needs a third more registers.
        target_axis = axis_parts(params, columns, flipped, chunks, TARGET, K, CHUNK, CHUNKS, ACCESS, BLOCK)
        target_after = sums_after(target_axis[1], CHUNKS)
        scale = softmax_scale(source_axis[3], K, FLOOR_SOURCE)
        target_scale = softmax_scale(target_axis[3], K, FLOOR_TARGET)
        # If K is not a multiple of CHUNK, one chunk is incomplete. Counted from the upper end, that chunk is the first.
        # Its missing bins get negative numbers, and they start before every position.
        base = tl.where(flipped, K - CHUNKS * CHUNK, 0)
        chunk = tl.zeros_like(base)
        for c in tl.static_range(1, CHUNKS):
            bins_before = (base + c * CHUNK).to(position.dtype)
            chunk = tl.where(scale * source_axis[2][c] + bins_before * FLOOR_SOURCE <= position, c, chunk)
        base += chunk * CHUNK
        first = tl.where(flipped, CHUNKS - 1 - chunk, chunk) * CHUNK
        exps = load_exponentials(params, source_axis, first, flipped, SOURCE, K, CHUNK, ACCESS, BLOCK)
        before = shift(sums_before(exps, CHUNK)[0], select(source_axis[2], chunk, 0, CHUNKS), CHUNK)
        inner = find(position, before, scale, FLOOR_SOURCE, base.to(position.dtype), CHUNK)
        bin = base + inner
        down, up = load_beside(params, source_axis, bin, flipped, SOURCE, K)
        before_bin = select(before, inner, 0, CHUNK)
        raw = (before_bin, before_bin, select(exps, inner, 0, CHUNK), down, up)
        source = bin_sizes(bin, scale, FLOOR_SOURCE, raw, K)
        of_source = (source_axis, raw, scale)
        scale = target_scale
        exps = load_exponentials(params, target_axis, first, flipped, TARGET, K, CHUNK, ACCESS, BLOCK)
        before = sums_before(exps, CHUNK)[0]
        down, up = load_beside(params, target_axis, bin, flipped, TARGET, K)
        before_bin = select(target_axis[2], chunk, 0, CHUNKS) + select(before, inner, 0, CHUNK)
        after_bin = select(target_after, chunk, 0, CHUNKS) + select(sums_after(exps, CHUNK), inner, 0, CHUNK)
        raw = (before_bin, after_bin, select(exps, inner, 0, CHUNK), down, up)
    target = bin_sizes(bin, scale, FLOOR_TARGET, raw, K)
    logits = end_logits(params, columns, bin, flipped, K, SLOPES, CHUNK)
    return bin, source, target, logits, (of_source, (target_axis, raw, scale))


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
    axis, raw, scale = saved
    _, exps, _, total = axis
    mean = softmax_mean(raw, total, grads)
    return flip(logit_grads(exps, 0, scale, mean, bin, grads, flipped, K, 0, K), flipped, 0, K)


@triton.jit
def store_axis_grads(out, exists, saved, bin, grads, flipped, params, chunks, START, K, CHUNK, DIMS, ACCESS, BLOCK):
    """Store the gradients of all logits of an axis, chunk by chunk."""
    axis, raw, scale = saved
    top, _, _, total = axis
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
            of_slopes = flip(knot_grads(0, (bin, low, high), K + 1), flipped, 0, K + 1)
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
                chunk = knot_grads(c * CHUNK, (where, lower, upper), CHUNK)
                store_chunk(out, exists, chunk, c * CHUNK, 2 * K, K + 1, CHUNK, DIMS, ACCESS, BLOCK)
