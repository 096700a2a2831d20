# mypy: ignore-errors
# ruff: noqa: N803, RET505, RUF005, SIM102, SIM108
"""One thread holds one element's parameters in registers: a tuple of vectors, one for each parameter.

Sums over bins are then plain additions, where a tile of elements x bins would shuffle every one of them across the
lanes of a warp. Packed params are brought in as a tile, lane beside lane along memory, and then taken apart: splitting
a tile along an axis of two that must lie in one thread makes the compiler turn it by one pass through shared memory.
Gradients leave the same way. Params that lie otherwise in memory (strided, shared) are read one parameter at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cubicflow.splines.backends.triton.bin import softmax_scale
from cubicflow.splines.backends.triton.places import TILE
from cubicflow.splines.backends.triton.unit import exp_below

# --- memory -----------------------------------------------------------------------------------------------------------
# `rows` are the offsets from `pointer` at which the elements' params start.


@triton.jit
def tile_to_columns(tile, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """[SIZE, BLOCK] -> SIZE vectors."""
    if SIZE == 1:
        return (tl.reshape(tile, (BLOCK,)),)
    else:
        low, high = tl.split(tl.permute(tl.reshape(tile, (2, SIZE // 2, BLOCK)), (1, 2, 0)))
        return tile_to_columns(low, SIZE // 2, BLOCK) + tile_to_columns(high, SIZE // 2, BLOCK)


@triton.jit
def columns_to_tile(columns, START: tl.constexpr, SIZE: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """columns[START : START + SIZE], with zeros past COUNT -> [SIZE, BLOCK]."""
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
    """SIZE columns, of which those past COUNT are not to be used."""
    column = tl.arange(0, SIZE)[:, None]
    tile = tl.load(pointer + (rows[None, :] + column), mask=(column < COUNT) & (rows[None, :] >= 0))
    return tile_to_columns(tile, SIZE, BLOCK)


@triton.jit
def load_columns(
    pointer, rows, stride, PADDED: tl.constexpr, COUNT: tl.constexpr, WAY: tl.constexpr, BLOCK: tl.constexpr
):
    """COUNT columns, and perhaps some more that are not to be used."""
    if WAY == TILE:
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
    WAY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    if WAY == TILE:
        store_tile(pointer, rows, exists, columns, PADDED, COUNT, BLOCK)
    else:
        for k in tl.static_range(COUNT):
            tl.store(pointer + (rows + k * stride), columns[k], mask=exists)


@triton.jit
def store_sums(pointer, columns, COUNT: tl.constexpr):
    """Each column summed over the elements of the block. One number at a time: a tile of them would take the compiler
    longer than it saves."""
    for k in tl.static_range(COUNT):
        tl.store(pointer + k, tl.sum(columns[k], axis=0))


# --- bins -------------------------------------------------------------------------------------------------------------


@triton.jit
def flip(columns, flipped, START: tl.constexpr, SIZE: tl.constexpr):
    """SIZE columns from START on, counted from the near end."""
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
def prefix_sums(values, REACH: tl.constexpr, SIZE: tl.constexpr):
    """Inclusive, by doubling, as in ``evaluation.py``: log2(K) additions stand behind each. REACH starts at 1."""
    if REACH >= SIZE:
        return values
    else:
        sums = ()
        for j in tl.static_range(SIZE):
            if j < REACH:
                sums = sums + (values[j],)
            else:
                sums = sums + (values[j] + values[j - REACH],)
        return prefix_sums(sums, 2 * REACH, SIZE)


@triton.jit
def sums_before(values, SIZE: tl.constexpr):
    """Of all values before each; and the sum of all."""
    sums = prefix_sums(values, 1, SIZE)
    out = (tl.zeros_like(values[0]),)
    for j in tl.static_range(1, SIZE):
        out = out + (sums[j - 1],)
    return out, sums[SIZE - 1]


@triton.jit
def sums_after(values, SIZE: tl.constexpr):
    """Summed from the far end."""
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
    """The softmax of one axis: exponentials counted from the near end, the sums before each, total and scale."""
    logits = flip(columns, flipped, START, K)
    exps = exponentials(logits, maximum(logits, K), K)
    before, total = sums_before(exps, K)
    return exps, before, total, softmax_scale(total, K, FLOOR)


@triton.jit
def find(position, before, scale, floor, base, SIZE: tl.constexpr):
    """The last j whose bin base + j, at scale x before[j] + (base + j) x floor, starts no later than `position`."""
    offset = base * floor
    found = tl.zeros_like(position).to(tl.int32)
    for j in tl.static_range(1, SIZE):
        found = tl.where(scale * before[j] + (offset + j * floor) <= position, j, found)
    return found


@triton.jit
def select(columns, index, SHIFT: tl.constexpr, SIZE: tl.constexpr):
    """columns[index + SHIFT], or the nearest there is, for an index below SIZE."""
    out = columns[0 if SHIFT < 0 else (SHIFT if SHIFT < SIZE else SIZE - 1)]
    for j in tl.static_range(1, SIZE):
        if j + SHIFT > 0:
            if j + SHIFT < SIZE:
                out = tl.where(index >= j, columns[j + SHIFT], out)
    return out


@triton.jit
def softmax_weight(column, bin, grads):
    """The gradient of one bin's size, counted from the near end: `before` for the bins that stand before the element's,
    `after` for those behind it, `size` for its own, `down` and `up` beside for its neighbours."""
    before, after, size, down, up = grads
    outside = tl.where(bin > column, before, after)
    beside = tl.where(bin == column + 1, down, tl.where(bin == column - 1, up, 0.0))
    return tl.where(bin == column, size, outside + beside)


@triton.jit
def softmax_mean(raw, total, grads):
    """The mean of these gradients under the softmax: known without a pass over the bins."""
    outside = grads[0] * raw[0] + grads[1] * raw[1]
    return (outside + grads[2] * raw[2] + (grads[3] * raw[3] + grads[4] * raw[4])) / total
