# mypy: ignore-errors
# ruff: noqa: N803, RET505, RUF005, SIM102, SIM108
"""One thread holds one element's parameters in registers. The parameters are a tuple of vectors, one per parameter.

Sums over bins are then plain additions. A tile of elements x bins would need a shuffle across the lanes of a warp for
every addition. Packed params are loaded as a tile, with coalesced reads, and then split into columns. The axis of a
split has size 2 and must be in one thread, so the compiler transposes the tile in one pass through shared memory.
Gradients are stored in the same way. Params with another memory layout (strided or shared) are read one at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cubicflow.splines.backends.triton.bin import softmax_scale
from cubicflow.splines.backends.triton.places import TILE
from cubicflow.splines.backends.triton.unit import exp_below

# --- memory -----------------------------------------------------------------------------------------------------------
# `rows` are the offsets of the elements' params from `pointer`.


@triton.jit
def tile_to_columns(tile, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Split a tile [SIZE, BLOCK] into SIZE vectors."""
    if SIZE == 1:
        return (tl.reshape(tile, (BLOCK,)),)
    else:
        low, high = tl.split(tl.permute(tl.reshape(tile, (2, SIZE // 2, BLOCK)), (1, 2, 0)))
        return tile_to_columns(low, SIZE // 2, BLOCK) + tile_to_columns(high, SIZE // 2, BLOCK)


@triton.jit
def columns_to_tile(columns, START: tl.constexpr, SIZE: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
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
def load_tile(pointer, rows, SIZE: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Return SIZE columns. Columns past COUNT are undefined."""
    column = tl.arange(0, SIZE)[:, None]
    tile = tl.load(pointer + (rows[None, :] + column), mask=(column < COUNT) & (rows[None, :] >= 0))
    return tile_to_columns(tile, SIZE, BLOCK)


@triton.jit
def load_columns(
    pointer, rows, stride, PADDED: tl.constexpr, COUNT: tl.constexpr, ACCESS: tl.constexpr, BLOCK: tl.constexpr
):
    """Return COUNT columns, possibly followed by undefined columns."""
    if ACCESS == TILE:
        return load_tile(pointer, rows, PADDED, COUNT, BLOCK)
    else:
        columns = ()
        for k in tl.static_range(COUNT):
            columns = columns + (tl.load(pointer + (rows + k * stride)),)
        return columns


@triton.jit
def store_tile(pointer, rows, exists, columns, SIZE: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, SIZE)[:, None]
    tile = columns_to_tile(columns, 0, SIZE, COUNT, BLOCK)
    tl.store(pointer + (rows[None, :] + column), tile, mask=exists[None, :] & (column < COUNT))


@triton.jit
def store_columns(
    pointer,
    rows,
    stride,
    exists,
    columns,
    PADDED: tl.constexpr,
    COUNT: tl.constexpr,
    ACCESS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    if ACCESS == TILE:
        store_tile(pointer, rows, exists, columns, PADDED, COUNT, BLOCK)
    else:
        for k in tl.static_range(COUNT):
            tl.store(pointer + (rows + k * stride), columns[k], mask=exists)


@triton.jit
def store_sums(pointer, columns, COUNT: tl.constexpr):
    """Store the sum of each column over the elements of the block. The sums are stored one at a time: a tile would cost
    more compile time than it saves."""
    for k in tl.static_range(COUNT):
        tl.store(pointer + k, tl.sum(columns[k], axis=0))


# --- bins -------------------------------------------------------------------------------------------------------------


@triton.jit
def flip(columns, flipped, START: tl.constexpr, SIZE: tl.constexpr):
    """Return SIZE columns from START on, in the order from the near end."""
    out = ()
    for j in tl.static_range(SIZE):
        out = out + (tl.where(flipped, columns[START + SIZE - 1 - j], columns[START + j]),)
    return out


@triton.jit
def maximum(columns, SIZE: tl.constexpr):
    top = columns[0]
    for j in tl.static_range(1, SIZE):
        top = tl.maximum(top, columns[j])
    return top


@triton.jit
def exponentials(logits, top, SIZE: tl.constexpr):
    out = ()
    for j in tl.static_range(SIZE):
        out = out + (exp_below(logits[j], top),)
    return out


@triton.jit
def prefix_sums(values, DISTANCE: tl.constexpr, SIZE: tl.constexpr):
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
def sums_before(values, SIZE: tl.constexpr):
    """Return the sums of all values before each value, and the total."""
    sums = prefix_sums(values, 1, SIZE)
    out = (tl.zeros_like(values[0]),)
    for j in tl.static_range(1, SIZE):
        out = out + (sums[j - 1],)
    return out, sums[SIZE - 1]


@triton.jit
def sums_after(values, SIZE: tl.constexpr):
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
def softmax_axis(columns, flipped, START: tl.constexpr, K: tl.constexpr, FLOOR: tl.constexpr):
    """Return the softmax of one axis, counted from the near end: exponentials, the sums before each, total and
    scale."""
    logits = flip(columns, flipped, START, K)
    exps = exponentials(logits, maximum(logits, K), K)
    before, total = sums_before(exps, K)
    return exps, before, total, softmax_scale(total, K, FLOOR)


@triton.jit
def find(position, before, scale, floor, base, SIZE: tl.constexpr):
    """Return the last j such that bin base + j starts at or before `position`. The bin starts at
    scale x before[j] + (base + j) x floor."""
    offset = base * floor
    found = tl.zeros_like(position).to(tl.int32)
    for j in tl.static_range(1, SIZE):
        found = tl.where(scale * before[j] + (offset + j * floor) <= position, j, found)
    return found


@triton.jit
def select(columns, index, SHIFT: tl.constexpr, SIZE: tl.constexpr):
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
