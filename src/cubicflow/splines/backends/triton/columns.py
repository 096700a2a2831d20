# mypy: ignore-errors
# ruff: noqa: N803, N806, RET505, RUF005, SIM102, SIM108
"""One thread holds one element's parameters in registers. The parameters are a tuple of vectors, one per parameter.

Sums over bins are then plain additions. A tile of elements x bins would need a shuffle across the lanes of a warp for
every addition. Packed params are loaded as a tile, with coalesced reads, and then split into columns. The axis of a
split has size 2 and must be in one thread, so the compiler transposes the tile in one pass through shared memory.
Gradients are stored in the same way. Params with another memory layout (strided or shared) are read one at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cubicflow.splines.backends.triton.places import SHARED, TILE
from cubicflow.splines.backends.triton.unit import exp_below

# --- memory -----------------------------------------------------------------------------------------------------------
# `rows` are the offsets of the elements' params from `pointer`.


@triton.jit
def tile_to_columns(tile, SIZE, BLOCK):
    """Split a tile [SIZE, BLOCK] into SIZE vectors."""
    if SIZE == 1:
        return (tl.reshape(tile, (BLOCK,)),)
    else:
        low, high = tl.split(tl.permute(tl.reshape(tile, (2, SIZE // 2, BLOCK)), (1, 2, 0)))
        return tile_to_columns(low, SIZE // 2, BLOCK) + tile_to_columns(high, SIZE // 2, BLOCK)


@triton.jit
def columns_to_tile(columns, START, SIZE, COUNT, BLOCK):
    """Join columns[START : START + SIZE], with zeros past COUNT, into a tile [SIZE, BLOCK]."""
    if SIZE == 1:
        if START < COUNT:
            return tl.reshape(columns[START], (1, BLOCK))
        else:
            return tl.reshape(tl.zeros_like(columns[0]), (1, BLOCK))
    else:
        low = columns_to_tile(columns, START, SIZE // 2, COUNT, BLOCK)
        high = columns_to_tile(columns, START + SIZE // 2, SIZE // 2, COUNT, BLOCK)
        return tl.reshape(tl.permute(tl.join(low, high), (2, 0, 1)), (SIZE, BLOCK))


@triton.jit
def load_columns(params, COUNT, ACCESS, BLOCK):
    """Return all COUNT params, possibly followed by undefined columns."""
    pointer, rows, stride = params
    if ACCESS == TILE:
        PADDED: tl.constexpr = triton.next_power_of_2(COUNT)
        column = tl.arange(0, PADDED)[:, None]
        tile = tl.load(pointer + (rows[None, :] + column), mask=(column < COUNT) & (rows[None, :] >= 0))
        return tile_to_columns(tile, PADDED, BLOCK)
    else:
        columns = ()
        for k in tl.static_range(COUNT):
            columns = columns + (tl.load(pointer + (rows + k * stride)),)
        return columns


@triton.jit
def load_chunk(params, first, START, SIZE, CHUNK, ACCESS, BLOCK):
    """Return CHUNK of the SIZE logits whose params start at START. Each element starts at its own logit `first`. Logits
    past the end are -inf."""
    pointer, rows, stride = params
    if ACCESS == TILE:
        at = first[None, :] + tl.arange(0, CHUNK)[:, None]
        offsets = rows[None, :] + (START + at)
        if SIZE % CHUNK == 0:
            tile = tl.load(pointer + offsets)
        else:
            tile = tl.load(pointer + offsets, mask=at < SIZE, other=float("-inf"))
        return tile_to_columns(tile, CHUNK, BLOCK)
    else:
        columns = ()
        for j in tl.static_range(CHUNK):
            at = first + j
            logit = tl.load(pointer + (rows + (START + at) * stride), mask=at < SIZE, other=float("-inf"))
            columns = columns + (logit,)
        return columns


@triton.jit
def store_columns(out, exists, columns, COUNT, DIMS, ACCESS, BLOCK):
    """Store the gradients of all COUNT params."""
    if ACCESS == TILE:
        pointer, rows, _ = out
        PADDED: tl.constexpr = triton.next_power_of_2(COUNT)
        column = tl.arange(0, PADDED)[:, None]
        tile = columns_to_tile(columns, 0, PADDED, COUNT, BLOCK)
        tl.store(pointer + (rows[None, :] + column), tile, mask=exists[None, :] & (column < COUNT))
    else:
        for k in tl.static_range(COUNT):
            store_column(out, exists, columns[k], k, DIMS)


@triton.jit
def store_column(out, exists, column, k, DIMS):
    """Store the gradients of parameter k. For a shared spline, store their sum over the elements."""
    pointer, rows, stride = out
    if DIMS == SHARED:  # one sum at a time: a tile of sums would cost more compile time than it saves
        tl.store(pointer + k, tl.sum(column, axis=0))
    else:
        tl.store(pointer + (rows + k * stride), column, mask=exists)


@triton.jit
def store_chunk(out, exists, grads, first, START, SIZE, CHUNK, DIMS, ACCESS, BLOCK):
    """Store CHUNK of the gradients of the SIZE logits whose params start at START."""
    pointer, rows, stride = out
    if DIMS == SHARED:
        at = first + tl.arange(0, CHUNK)
        tl.store(pointer + START + at, tl.sum(columns_to_tile(grads, 0, CHUNK, CHUNK, BLOCK), axis=1), mask=at < SIZE)
    elif ACCESS == TILE:
        at = first + tl.arange(0, CHUNK)[:, None]
        tile = columns_to_tile(grads, 0, CHUNK, CHUNK, BLOCK)
        tl.store(pointer + (rows[None, :] + (START + at)), tile, mask=exists[None, :] & (at < SIZE))
    else:
        for j in tl.static_range(CHUNK):
            at = tl.zeros((BLOCK,), tl.int32) + (first + j)
            tl.store(pointer + (rows + (START + at) * stride), grads[j], mask=exists & (at < SIZE))


# --- bins -------------------------------------------------------------------------------------------------------------


@triton.jit
def flip(columns, flipped, START, SIZE):
    """Return SIZE columns from START on, in the order from the near end."""
    out = ()
    for j in tl.static_range(SIZE):
        out = out + (tl.where(flipped, columns[START + SIZE - 1 - j], columns[START + j]),)
    return out


@triton.jit
def maximum(columns, SIZE):
    top = columns[0]
    for j in tl.static_range(1, SIZE):
        top = tl.maximum(top, columns[j])
    return top


@triton.jit
def exponentials(logits, top, SIZE):
    out = ()
    for j in tl.static_range(SIZE):
        out = out + (exp_below(logits[j], top),)
    return out


@triton.jit
def prefix_sums(values, DISTANCE, SIZE):
    """Return inclusive prefix sums by doubling, as in ``evaluation.py``: each sum is a tree of log2(K) additions.
    DISTANCE starts at 1."""
    if DISTANCE >= SIZE:
        return values
    else:
        sums = ()
        for j in tl.static_range(SIZE):
            if j < DISTANCE:
                sums = sums + (values[j],)
            else:
                sums = sums + (values[j] + values[j - DISTANCE],)
        return prefix_sums(sums, 2 * DISTANCE, SIZE)


@triton.jit
def shift(values, amount, SIZE):
    out = ()
    for j in tl.static_range(SIZE):
        out = out + (values[j] + amount,)
    return out


@triton.jit
def sums_before(values, SIZE):
    """Return the sums of all values before each value, and the total."""
    sums = prefix_sums(values, 1, SIZE)
    out = (tl.zeros_like(values[0]),)
    for j in tl.static_range(1, SIZE):
        out = out + (sums[j - 1],)
    return out, sums[SIZE - 1]


@triton.jit
def sums_after(values, SIZE):
    """Return the sums of all values after each value, added from the far end."""
    mirrored = ()
    for j in tl.static_range(SIZE):
        mirrored = mirrored + (values[SIZE - 1 - j],)
    before, _ = sums_before(mirrored, SIZE)
    out = ()
    for j in tl.static_range(SIZE):
        out = out + (before[SIZE - 1 - j],)
    return out


@triton.jit
def find(position, before, scale, floor, base, SIZE):
    """Return the index j < SIZE of the last bin that starts at or before `position`. There are base + j bins before bin
    j. The sum of their exponentials is before[j]."""
    offset = base * floor
    found = tl.zeros_like(position).to(tl.int32)
    for j in tl.static_range(1, SIZE):
        found = tl.where(scale * before[j] + (offset + j * floor) <= position, j, found)
    return found


@triton.jit
def select(columns, index, SHIFT, SIZE):
    """Return columns[index + SHIFT] for an index below SIZE. index + SHIFT is clamped to the existing columns."""
    out = columns[0 if SHIFT < 0 else (SHIFT if SHIFT < SIZE else SIZE - 1)]
    for j in tl.static_range(1, SIZE):
        if j + SHIFT > 0:
            if j + SHIFT < SIZE:
                out = tl.where(index >= j, columns[j + SHIFT], out)
    return out


@triton.jit
def softmax_weight(column, bin, grads):
    """Return the gradient of the size of bin `column`, counted from the near end.

    `grads` is (before, after, size, down, up). The element's bin has the gradient `size`. Bins before it have `before`,
    and bins after it have `after`. The two bins beside it get `down` or `up` in addition.
    """
    before, after, size, down, up = grads
    outside = tl.where(bin > column, before, after)
    beside = tl.where(bin == column + 1, down, tl.where(bin == column - 1, up, 0.0))
    return tl.where(bin == column, size, outside + beside)


@triton.jit
def softmax_mean(raw, total, grads):
    """Return the mean, under the softmax, of the gradients of all sizes. No pass over the bins is needed."""
    outside = grads[0] * raw[0] + grads[1] * raw[1]
    return (outside + grads[2] * raw[2] + (grads[3] * raw[3] + grads[4] * raw[4])) / total


@triton.jit
def from_near_end(j, first, flipped, K, CHUNK):
    """Return the number, counted from the near end, of bin j of a chunk that starts at `first` in the order of params.
    With CHUNK == 0, all bins are in registers and already counted from the near end."""
    if CHUNK == 0:
        return j
    else:
        return tl.where(flipped, (K - 1 - j) - first, j + first)


@triton.jit
def knot_grad(knot, knots):
    """Return the gradient of the value at a knot. `knots` is (bin, low, high): only the two knots of the element's bin
    have a gradient."""
    bin, low, high = knots
    return tl.where(bin == knot, low, tl.where(bin == knot - 1, high, 0.0))


@triton.jit
def knot_grads(first, knots, SIZE):
    """Return the gradients of SIZE values at knots, from knot `first` on."""
    out = ()
    for j in tl.static_range(SIZE):
        out = out + (knot_grad(first + j, knots),)
    return out
