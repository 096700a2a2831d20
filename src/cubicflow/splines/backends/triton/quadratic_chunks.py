# mypy: ignore-errors
# ruff: noqa: N803, N806, RET505, RUF005
"""The bins of the quadratic spline, for many bins, read in chunks as in ``chunks.py``.

The notation is that of ``quadratic.py``, with m_j = (v_j + v_j+1) / 2. e_j are the exponentials of the widths, s their
scale and f their floor:

    w_j = s e_j + f        A = sum of w_j m_j        h_j = w_j (uniform + share m_j),  share = (1 - uniform) / A

Every sum over bins, for knots, areas and gradients, therefore follows from three sums of positive numbers: the sums of
e, of e m and of m. The code passes these three sums as a triple in this order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cubicflow.splines.backends.triton.bin import locate_ends, search_position, softmax_scale
from cubicflow.splines.backends.triton.chunk_memory import load_chunk, store_chunk
from cubicflow.splines.backends.triton.columns import (
    exponentials,
    flip,
    maximum,
    prefix_sums,
    select,
    softmax_weight,
    sums_after,
    sums_before,
    tile_to_columns,
)
from cubicflow.splines.backends.triton.places import SHARED
from cubicflow.splines.backends.triton.unit import divide, exp_below


@triton.jit
def load_bins(
    pointer, rows, stride, first, K: tl.constexpr, CHUNK: tl.constexpr, ACCESS: tl.constexpr, BLOCK: tl.constexpr
):
    """Return the logits of a chunk's CHUNK widths and CHUNK + 1 vertices. Logits past the end are -inf."""
    widths = load_chunk(pointer, rows, stride, first, 0, K, CHUNK, ACCESS, BLOCK)
    vertices = load_chunk(pointer, rows, stride, first, K, K + 1, CHUNK, ACCESS, BLOCK)
    last = first + CHUNK
    vertex = tl.load(pointer + (rows + (K + last) * stride), mask=last <= K, other=float("-inf"))
    return widths, vertices + (vertex,)


@triton.jit
def midpoints(vertices, first, K: tl.constexpr, CHUNK: tl.constexpr):
    """Return m_j for the bins of a chunk. m_j is 0 past the end, because no bin starts at the last vertex."""
    out = ()
    for j in tl.static_range(CHUNK):
        middle = (vertices[j] + vertices[j + 1]) * 0.5
        if K % CHUNK != 0:
            middle = tl.where(first + j < K, middle, 0.0)
        out = out + (middle,)
    return out


@triton.jit
def products(ones, others, SIZE: tl.constexpr):
    out = ()
    for j in tl.static_range(SIZE):
        out = out + (ones[j] * others[j],)
    return out


@triton.jit
def chunk_sums(
    pointer,
    rows,
    stride,
    chunks,
    K: tl.constexpr,
    CHUNK: tl.constexpr,
    PADDED: tl.constexpr,
    ACCESS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return the largest logits of widths and of vertices, and the three sums of each chunk."""
    dtype = pointer.dtype.element_ty
    index = tl.arange(0, PADDED)[:, None]
    width_top = tl.full((BLOCK,), -1e30, dtype)  # not -inf: -inf - -inf would be NaN
    vertex_top = width_top
    of_exps = tl.zeros((PADDED, BLOCK), dtype)
    of_products = of_exps
    of_middles = of_exps
    for c in range(chunks):
        first = tl.zeros((BLOCK,), tl.int32) + c * CHUNK
        widths, vertices = load_bins(pointer, rows, stride, first, K, CHUNK, ACCESS, BLOCK)
        higher_width = tl.maximum(width_top, maximum(widths, CHUNK))
        higher_vertex = tl.maximum(vertex_top, maximum(vertices, CHUNK + 1))
        exps = exponentials(widths, higher_width, CHUNK)
        middles = midpoints(exponentials(vertices, higher_vertex, CHUNK + 1), first, K, CHUNK)
        by_width = exp_below(width_top, higher_width)[None, :]
        by_vertex = exp_below(vertex_top, higher_vertex)[None, :]
        here = index == c
        exps_sum = prefix_sums(exps, 1, CHUNK)[CHUNK - 1][None, :]
        products_sum = prefix_sums(products(exps, middles, CHUNK), 1, CHUNK)[CHUNK - 1][None, :]
        middles_sum = prefix_sums(middles, 1, CHUNK)[CHUNK - 1][None, :]
        of_exps = tl.where(here, exps_sum, of_exps * by_width)
        of_products = tl.where(here, products_sum, of_products * by_width * by_vertex)
        of_middles = tl.where(here, middles_sum, of_middles * by_vertex)
        width_top = higher_width
        vertex_top = higher_vertex
    return (
        (width_top, vertex_top),
        tile_to_columns(of_exps, PADDED, BLOCK),
        tile_to_columns(of_products, PADDED, BLOCK),
        tile_to_columns(of_middles, PADDED, BLOCK),
    )


@triton.jit
def add(ones, others):
    return ones[0] + others[0], ones[1] + others[1], ones[2] + others[2]


@triton.jit
def pick(columns, index, SIZE: tl.constexpr):
    """Return entry `index` of each of the three tuples."""
    return select(columns[0], index, 0, SIZE), select(columns[1], index, 0, SIZE), select(columns[2], index, 0, SIZE)


@triton.jit
def before_each(values, SIZE: tl.constexpr):
    """Return the three sums over all bins, or chunks, before each one."""
    return sums_before(values[0], SIZE)[0], sums_before(values[1], SIZE)[0], sums_before(values[2], SIZE)[0]


@triton.jit
def after_each(values, SIZE: tl.constexpr):
    """Return the three sums over all bins, or chunks, after each one."""
    return sums_after(values[0], SIZE), sums_after(values[1], SIZE), sums_after(values[2], SIZE)


@triton.jit
def sizes(sums, bins, scale, share, FLOOR: tl.constexpr, UNIFORM: tl.constexpr):
    """Return the total width and the total height of `bins` bins with these three sums."""
    width = scale * sums[0] + bins * FLOOR
    return width, UNIFORM * width + share * (scale * sums[1] + FLOOR * sums[2])


@triton.jit
def search(
    position,
    before,
    start,
    base,
    scale,
    share,
    FLOOR: tl.constexpr,
    UNIFORM: tl.constexpr,
    INVERSE: tl.constexpr,
    STEP: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Return the index j < SIZE of the last bin, or chunk, that starts at or before `position`.

    There are base + j STEP bins before bin, or chunk, j. Their sums are start + before[j].
    """
    found = tl.zeros_like(base)
    for j in tl.static_range(1, SIZE):
        sums = add(start, (before[0][j], before[1][j], before[2][j]))
        width, height = sizes(sums, (base + j * STEP).to(position.dtype), scale, share, FLOOR, UNIFORM)
        found = tl.where((height if INVERSE else width) <= position, j, found)
    return found


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
    CHUNK: tl.constexpr,
    ACCESS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return the arguments of ``bin.evaluate``, with the densities at the bin's ends as logits, and the saved values of
    ``params_backward``."""
    FLOOR: tl.constexpr = FLOOR_TARGET if INVERSE else FLOOR_SOURCE
    UNIFORM: tl.constexpr = K * (FLOOR_SOURCE if INVERSE else FLOOR_TARGET)
    CHUNKS: tl.constexpr = (K + CHUNK - 1) // CHUNK
    PADDED: tl.constexpr = triton.next_power_of_2(CHUNKS)
    ends = locate_ends(x, DOMAIN)
    flipped = ends[2]
    position = search_position(ends[0], flipped)
    none = tl.zeros_like(position)

    tops, exps, by_middles, middles = chunk_sums(pointer, rows, stride, chunks, K, CHUNK, PADDED, ACCESS, BLOCK)
    sums = (flip(exps, flipped, 0, CHUNKS), flip(by_middles, flipped, 0, CHUNKS), flip(middles, flipped, 0, CHUNKS))
    total = prefix_sums(sums[0], 1, CHUNKS)[CHUNKS - 1]
    of_products = prefix_sums(sums[1], 1, CHUNKS)[CHUNKS - 1]
    of_middles = prefix_sums(sums[2], 1, CHUNKS)[CHUNKS - 1]
    scale = softmax_scale(total, K, FLOOR)
    area = scale * of_products + FLOOR * of_middles
    share = divide(tl.full(area.shape, 1 - UNIFORM, area.dtype), area)

    # If K is not a multiple of CHUNK, one chunk is incomplete. Counted from the upper end, that chunk is the first. Its
    # missing bins get negative numbers, and they start before every position.
    base = tl.where(flipped, K - CHUNKS * CHUNK, 0)
    chunks_before = before_each(sums, CHUNKS)
    empty = (none, none, none)
    found = search(position, chunks_before, empty, base, scale, share, FLOOR, UNIFORM, INVERSE, CHUNK, CHUNKS)
    base += found * CHUNK
    first = tl.where(flipped, CHUNKS - 1 - found, found) * CHUNK

    widths, vertices = load_bins(pointer, rows, stride, first, K, CHUNK, ACCESS, BLOCK)
    exps = exponentials(widths, tops[0], CHUNK)
    vertices = exponentials(vertices, tops[1], CHUNK + 1)
    middles = midpoints(vertices, first, K, CHUNK)
    exps = flip(exps, flipped, 0, CHUNK)
    middles = flip(middles, flipped, 0, CHUNK)
    vertices = flip(vertices, flipped, 0, CHUNK + 1)
    values = (exps, products(exps, middles, CHUNK), middles)
    start = pick(chunks_before, found, CHUNKS)
    bins_before = before_each(values, CHUNK)
    inner = search(position, bins_before, start, base, scale, share, FLOOR, UNIFORM, INVERSE, 1, CHUNK)
    bin = base + inner

    before = add(start, pick(bins_before, inner, CHUNK))
    after = add(pick(after_each(sums, CHUNKS), found, CHUNKS), pick(after_each(values, CHUNK), inner, CHUNK))
    own = pick(values, inner, CHUNK)
    index = bin.to(position.dtype)
    width_before, height_before = sizes(before, index, scale, share, FLOOR, UNIFORM)
    width_after, height_after = sizes(after, K - 1 - index, scale, share, FLOOR, UNIFORM)
    width = scale * own[0] + FLOOR
    height = width * (UNIFORM + share * own[2])
    width_axis = (width_before, width_after, width, width, width)  # down and up are unused by a quadratic
    height_axis = (height_before, height_after, height, height, height)
    bounds = (select(vertices, inner, 0, CHUNK + 1), select(vertices, inner, 1, CHUNK + 1))
    logits = (share * bounds[0] + UNIFORM, share * bounds[1] + UNIFORM)
    saved = (tops, (before, after, own), bounds, (total, of_products), scale, area, share)
    if INVERSE:
        return ends, bin, height_axis, width_axis, logits, saved
    else:
        return ends, bin, width_axis, height_axis, logits, saved


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
    FLOOR_SOURCE: tl.constexpr,
    FLOOR_TARGET: tl.constexpr,
    INVERSE: tl.constexpr,
    CHUNK: tl.constexpr,
    DIMS: tl.constexpr,
    ACCESS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the gradients of all params. The gradient of the area and the mean under the softmax need no pass over the
    bins."""
    FLOOR: tl.constexpr = FLOOR_TARGET if INVERSE else FLOOR_SOURCE
    UNIFORM: tl.constexpr = K * (FLOOR_SOURCE if INVERSE else FLOOR_TARGET)
    tops, raw, bounds, totals, scale, area, share = saved
    before, after, own = raw
    width_grads = grad_target if INVERSE else grad_source
    height_grads = grad_source if INVERSE else grad_target

    of_area = grad_logits[0] * bounds[0] + grad_logits[1] * bounds[1]
    of_area += height_grads[0] * (scale * before[1] + FLOOR * before[2]) + height_grads[1] * (
        scale * after[1] + FLOOR * after[2]
    )
    of_area += height_grads[2] * (scale * own[0] + FLOOR) * own[2]
    of_area *= -share / area
    mean = (width_grads[0] + UNIFORM * height_grads[0]) * before[0] + share * height_grads[0] * before[1]
    mean += (width_grads[1] + UNIFORM * height_grads[1]) * after[0] + share * height_grads[1] * after[1]
    mean += (width_grads[2] + UNIFORM * height_grads[2]) * own[0] + share * height_grads[2] * own[1]
    mean = (mean + of_area * totals[1]) / totals[0]

    # Counted in the order of params: the bin, and the gradients of the densities at its lower and its upper vertex.
    where = tl.where(flipped, K - 1 - bin, bin)
    low = tl.where(flipped, grad_logits[1], grad_logits[0])
    high = tl.where(flipped, grad_logits[0], grad_logits[1])
    below = tl.zeros_like(area)  # half the width of the bin below a vertex, times the gradient of that bin's height
    half_below = below  # half the width of the bin below a vertex
    for c in range(chunks):
        first = c * CHUNK
        at = tl.zeros((BLOCK,), tl.int32) + first
        widths, vertices = load_bins(pointer, rows, stride, at, K, CHUNK, ACCESS, BLOCK)
        exps = exponentials(widths, tops[0], CHUNK)
        vertices = exponentials(vertices, tops[1], CHUNK + 1)
        middles = midpoints(vertices, at, K, CHUNK)
        of_widths = ()
        of_vertices = ()
        for j in tl.static_range(CHUNK):
            column = tl.where(flipped, (K - 1 - j) - first, j + first)
            of_height = softmax_weight(column, bin, height_grads)
            of_width = softmax_weight(column, bin, width_grads) + of_area * middles[j]
            of_width += of_height * (UNIFORM + share * middles[j])
            of_widths = of_widths + (scale * exps[j] * (of_width - mean),)
            half = (scale * exps[j] + FLOOR) * 0.5
            above = half * of_height
            own_density = tl.where(where == first + j, low, tl.where(where == first + (j - 1), high, 0.0))
            of_density = own_density + below + above
            of_vertices = of_vertices + (vertices[j] * (share * of_density + of_area * (half_below + half)),)
            below = above
            half_below = half
        store_chunk(out_pointer, out_rows, out_stride, exists, of_widths, first, 0, K, CHUNK, DIMS, ACCESS, BLOCK)
        store_chunk(out_pointer, out_rows, out_stride, exists, of_vertices, first, K, K, CHUNK, DIMS, ACCESS, BLOCK)

    # The last vertex, which belongs to one bin only.
    width = exp_below(tl.load(pointer + (rows + (K - 1) * stride)), tops[0])
    vertex = exp_below(tl.load(pointer + (rows + 2 * K * stride)), tops[1])
    half = (scale * width + FLOOR) * 0.5
    of_height = softmax_weight(tl.where(flipped, 0, K - 1), bin, height_grads)
    of_density = tl.where(where == K - 1, high, 0.0) + half * of_height
    of_vertex = vertex * (share * of_density + of_area * half)
    if DIMS == SHARED:
        tl.store(out_pointer + 2 * K, tl.sum(of_vertex, axis=0))
    else:
        tl.store(out_pointer + (out_rows + 2 * K * out_stride), of_vertex, mask=exists)
