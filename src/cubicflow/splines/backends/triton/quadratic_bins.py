# mypy: ignore-errors
# ruff: noqa: N803, N806, RUF005
"""The bins of the quadratic spline: all bins at once, or in chunks. Heights are areas under a density with given values
at the knots, as in ``splines/quadratic.py``:

    v_j = exp(param)                     m_j = (v_j + v_j+1) / 2
    w_j = s e_j + f                      A = sum of w_j m_j
    d_j = uniform + share v_j            h_j = w_j (uniform + share m_j),  share = (1 - uniform) / A

e_j are the exponentials of the widths, s their scale and f their floor. In chunks, every sum over bins, for knots,
areas and gradients, follows from three sums of positive numbers: the sums of e, of e m and of m. The code passes these
three sums as a triple in this order. With CHUNK == 0, all widths and heights are in registers and summed themselves,
which takes half as many registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cubicflow.splines.backends.triton.bin import search_position, softmax_scale
from cubicflow.splines.backends.triton.columns import (
    exponentials,
    find,
    flip,
    from_near_end,
    knot_grad,
    load_chunk,
    maximum,
    prefix_sums,
    select,
    softmax_weight,
    store_chunk,
    store_column,
    store_columns,
    sums_after,
    sums_before,
    tile_to_columns,
)
from cubicflow.splines.backends.triton.places import place_grads
from cubicflow.splines.backends.triton.unit import divide, exp_below


@triton.jit
def load_bins(params, first, K, CHUNK, ACCESS, BLOCK):
    """Return the logits of a chunk's CHUNK widths and CHUNK + 1 vertices. Logits past the end are -inf."""
    pointer, rows, stride = params
    widths = load_chunk(params, first, 0, K, CHUNK, ACCESS, BLOCK)
    vertices = load_chunk(params, first, K, K + 1, CHUNK, ACCESS, BLOCK)
    last = first + CHUNK
    vertex = tl.load(pointer + (rows + (K + last) * stride), mask=last <= K, other=float("-inf"))
    return widths, vertices + (vertex,)


@triton.jit
def bin_values(logits, tops, first, K, SIZE):
    """Return e, v and m of the SIZE bins from bin `first` on. m is 0 past the end, because no bin starts at the last
    vertex."""
    exps = exponentials(logits[0], tops[0], SIZE)
    vertices = exponentials(logits[1], tops[1], SIZE + 1)
    middles = ()
    for j in tl.static_range(SIZE):
        middle = (vertices[j] + vertices[j + 1]) * 0.5
        if K % SIZE != 0:
            middle = tl.where(first + j < K, middle, 0.0)
        middles = middles + (middle,)
    return exps, vertices, middles


@triton.jit
def triple(exps, middles, SIZE):
    products = ()
    for j in tl.static_range(SIZE):
        products = products + (exps[j] * middles[j],)
    return exps, products, middles


@triton.jit
def chunk_sums(params, chunks, K, CHUNK, CHUNKS, ACCESS, BLOCK):
    """Return the largest logits of widths and of vertices, and the three sums of each chunk."""
    PADDED: tl.constexpr = triton.next_power_of_2(CHUNKS)
    dtype = params[0].dtype.element_ty
    here = tl.arange(0, PADDED)[:, None]
    width_top = tl.full((BLOCK,), -1e30, dtype)  # not -inf: -inf - -inf would be NaN
    vertex_top = width_top
    of_exps = tl.zeros((PADDED, BLOCK), dtype)
    of_products = of_exps
    of_middles = of_exps
    for c in range(chunks):
        first = tl.zeros((BLOCK,), tl.int32) + c * CHUNK
        logits = load_bins(params, first, K, CHUNK, ACCESS, BLOCK)
        tops = (tl.maximum(width_top, maximum(logits[0], CHUNK)), tl.maximum(vertex_top, maximum(logits[1], CHUNK + 1)))
        exps, _, middles = bin_values(logits, tops, first, K, CHUNK)
        by_width = exp_below(width_top, tops[0])[None, :]
        by_vertex = exp_below(vertex_top, tops[1])[None, :]
        sums = total_each(triple(exps, middles, CHUNK), CHUNK)
        of_exps = tl.where(here == c, sums[0][None, :], of_exps * by_width)
        of_products = tl.where(here == c, sums[1][None, :], of_products * by_width * by_vertex)
        of_middles = tl.where(here == c, sums[2][None, :], of_middles * by_vertex)
        width_top, vertex_top = tops
    sums = (
        tile_to_columns(of_exps, PADDED, BLOCK),
        tile_to_columns(of_products, PADDED, BLOCK),
        tile_to_columns(of_middles, PADDED, BLOCK),
    )
    return (width_top, vertex_top), sums


# --- three sums at once -----------------------------------------------------------------------------------------------


@triton.jit
def total_each(values, SIZE):
    sums = (prefix_sums(values[0], 1, SIZE), prefix_sums(values[1], 1, SIZE), prefix_sums(values[2], 1, SIZE))
    return sums[0][SIZE - 1], sums[1][SIZE - 1], sums[2][SIZE - 1]


@triton.jit
def before_each(values, SIZE):
    return sums_before(values[0], SIZE)[0], sums_before(values[1], SIZE)[0], sums_before(values[2], SIZE)[0]


@triton.jit
def after_each(values, SIZE):
    return sums_after(values[0], SIZE), sums_after(values[1], SIZE), sums_after(values[2], SIZE)


@triton.jit
def pick(values, index, SIZE):
    return select(values[0], index, 0, SIZE), select(values[1], index, 0, SIZE), select(values[2], index, 0, SIZE)


@triton.jit
def add(ones, others):
    return ones[0] + others[0], ones[1] + others[1], ones[2] + others[2]


@triton.jit
def sizes(sums, bins, scale, share, FLOOR, UNIFORM):
    """Return the total width and the total height of `bins` bins with these three sums."""
    width = scale * sums[0] + bins * FLOOR
    return width, UNIFORM * width + share * (scale * sums[1] + FLOOR * sums[2])


@triton.jit
def search(position, before, start, base, scale, share, FLOOR, UNIFORM, INVERSE, STEP, SIZE):
    """Return the index j < SIZE of the last bin, or chunk, that starts at or before `position`. There are base + j STEP
    bins before bin, or chunk, j. Their sums are start + before[j]."""
    found = tl.zeros_like(base)
    for j in tl.static_range(1, SIZE):
        sums = add(start, (before[0][j], before[1][j], before[2][j]))
        width, height = sizes(sums, (base + j * STEP).to(position.dtype), scale, share, FLOOR, UNIFORM)
        found = tl.where((height if INVERSE else width) <= position, j, found)
    return found


# --- values -----------------------------------------------------------------------------------------------------------


@triton.jit
def locate_in_all(position, exps, middles, scale, share, FLOOR, UNIFORM, INVERSE, K):
    """Return (bin, source, target) as in ``bin.py``, given all bins."""
    widths = ()
    heights = ()
    for j in tl.static_range(K):
        widths = widths + (scale * exps[j] + FLOOR,)
        heights = heights + (widths[j] * (UNIFORM + share * middles[j]),)
    source = heights if INVERSE else widths
    target = widths if INVERSE else heights
    starts, _ = sums_before(source, K)
    bin = find(position, starts, 1.0, 0.0, 0, K)
    start = select(starts, bin, 0, K)
    size = select(source, bin, 0, K)
    of_source = (start, start, size, size, size)  # the sum after the source's bin, down and up are unused
    size = select(target, bin, 0, K)
    sums = (select(sums_before(target, K)[0], bin, 0, K), select(sums_after(target, K), bin, 0, K))
    return bin, of_source, sums + (size, size, size)


@triton.jit
def locate(near, flipped, params, columns, chunks, K, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, CHUNK, ACCESS, BLOCK):
    """Return (bin, source, target, logits) as in ``bin.py``, with the densities at the bin's ends as logits, and what
    :func:`store_grads` needs."""
    FLOOR: tl.constexpr = FLOOR_TARGET if INVERSE else FLOOR_SOURCE
    UNIFORM: tl.constexpr = K * (FLOOR_SOURCE if INVERSE else FLOOR_TARGET)
    SIZE: tl.constexpr = K if CHUNK == 0 else CHUNK
    CHUNKS: tl.constexpr = (K + SIZE - 1) // SIZE
    position = search_position(near, flipped)
    if CHUNK == 0:
        logits = (flip(columns, flipped, 0, K), flip(columns, flipped, K, K + 1))
        tops = (maximum(logits[0], K), maximum(logits[1], K + 1))
        exps, vertices, middles = bin_values(logits, tops, 0, K, K)
        totals = total_each(triple(exps, middles, K), K)
    else:
        none = tl.zeros_like(position)
        tops, sums = chunk_sums(params, chunks, K, CHUNK, CHUNKS, ACCESS, BLOCK)
        sums = (flip(sums[0], flipped, 0, CHUNKS), flip(sums[1], flipped, 0, CHUNKS), flip(sums[2], flipped, 0, CHUNKS))
        totals = total_each(sums, CHUNKS)
    scale = softmax_scale(totals[0], K, FLOOR)
    area = scale * totals[1] + FLOOR * totals[2]
    share = divide(tl.full(area.shape, 1 - UNIFORM, area.dtype), area)

    if CHUNK == 0:
        bin, source, target = locate_in_all(position, exps, middles, scale, share, FLOOR, UNIFORM, INVERSE, K)
        inner = bin
        raw = ()
    else:
        # If K is not a multiple of CHUNK, one chunk is incomplete. Counted from the upper end, that chunk is the first.
        # Its missing bins get negative numbers, and they start before every position.
        base = tl.where(flipped, K - CHUNKS * CHUNK, 0)
        chunks_before = before_each(sums, CHUNKS)
        empty = (none, none, none)
        chunk = search(position, chunks_before, empty, base, scale, share, FLOOR, UNIFORM, INVERSE, CHUNK, CHUNKS)
        base += chunk * CHUNK
        first = tl.where(flipped, CHUNKS - 1 - chunk, chunk) * CHUNK
        exps, vertices, middles = bin_values(load_bins(params, first, K, CHUNK, ACCESS, BLOCK), tops, first, K, CHUNK)
        exps = flip(exps, flipped, 0, CHUNK)
        middles = flip(middles, flipped, 0, CHUNK)
        vertices = flip(vertices, flipped, 0, CHUNK + 1)
        values = triple(exps, middles, CHUNK)
        start = pick(chunks_before, chunk, CHUNKS)
        bins_before = before_each(values, CHUNK)
        inner = search(position, bins_before, start, base, scale, share, FLOOR, UNIFORM, INVERSE, 1, CHUNK)
        bin = base + inner
        before = add(start, pick(bins_before, inner, CHUNK))
        after = add(pick(after_each(sums, CHUNKS), chunk, CHUNKS), pick(after_each(values, CHUNK), inner, CHUNK))
        own = pick(values, inner, CHUNK)
        index = bin.to(position.dtype)
        width_before, height_before = sizes(before, index, scale, share, FLOOR, UNIFORM)
        width_after, height_after = sizes(after, K - 1 - index, scale, share, FLOOR, UNIFORM)
        width = scale * own[0] + FLOOR
        height = width * (UNIFORM + share * own[2])
        widths = (width_before, width_after, width, width, width)
        heights = (height_before, height_after, height, height, height)
        source = heights if INVERSE else widths
        target = widths if INVERSE else heights
        raw = (before, after, own)
    bounds = (select(vertices, inner, 0, SIZE + 1), select(vertices, inner, 1, SIZE + 1))
    densities = (share * bounds[0] + UNIFORM, share * bounds[1] + UNIFORM)
    return bin, source, target, densities, (tops, raw, bounds, totals, scale, area, share, exps, vertices, middles)


# --- gradients --------------------------------------------------------------------------------------------------------


@triton.jit
def bin_grads(values, below, first, bin, grads, knots, terms, flipped, K, FLOOR, UNIFORM, CHUNK, SIZE):
    """Return the gradients of the logits of SIZE widths and of the vertices at their lower ends, from bin `first` on.

    `below` is (half the width of the bin below a vertex, that times the gradient of the bin's height). `knots` is as in
    :func:`knot_grad`. The last result is `below` for the next vertex.
    """
    exps, vertices, middles = values
    half_below, grad_below = below
    scale, share, of_area, mean = terms
    of_widths = ()
    of_vertices = ()
    for j in tl.static_range(SIZE):
        column = from_near_end(j, first, flipped, K, CHUNK)
        of_height = softmax_weight(column, bin, grads[1])
        of_width = softmax_weight(column, bin, grads[0]) + of_height * (UNIFORM + share * middles[j])
        of_width += of_area * middles[j]
        of_widths = of_widths + (scale * exps[j] * (of_width - mean),)
        half = (scale * exps[j] + FLOOR) * 0.5
        of_density = knot_grad(first + j, knots) + grad_below + half * of_height
        of_vertices = of_vertices + (vertices[j] * (share * of_density + of_area * (half_below + half)),)
        half_below = half
        grad_below = half * of_height
    return of_widths, of_vertices, (half_below, grad_below)


@triton.jit
def store_grads(
    out, exists, saved, bin, grads, flipped, params, chunks,
    K, COUNT, FLOOR_SOURCE, FLOOR_TARGET, INVERSE, CHUNK, DIMS, ACCESS, BLOCK,
):  # fmt: skip
    """Store the gradients of all params. `out` is as in :func:`place_grads`. `grads` are those of the source, of the
    target and of the densities. The gradient of the area and the mean under the softmax need no second pass over the
    bins."""
    FLOOR: tl.constexpr = FLOOR_TARGET if INVERSE else FLOOR_SOURCE
    UNIFORM: tl.constexpr = K * (FLOOR_SOURCE if INVERSE else FLOOR_TARGET)
    tops, raw, bounds, totals, scale, area, share, exps, vertices, middles = saved
    width_grads = grads[1] if INVERSE else grads[0]
    height_grads = grads[0] if INVERSE else grads[1]
    low, high = grads[2]
    out = place_grads(out, DIMS, COUNT, ACCESS, BLOCK)
    of_area = low * bounds[0] + high * bounds[1]
    if CHUNK == 0:
        of_areas = ()
        of_exps = ()
        for j in tl.static_range(K):
            of_height = softmax_weight(j, bin, height_grads)
            of_width = softmax_weight(j, bin, width_grads) + of_height * (UNIFORM + share * middles[j])
            of_areas = of_areas + (of_height * ((scale * exps[j] + FLOOR) * middles[j]),)
            of_exps = of_exps + (of_width * exps[j],)
        of_area += prefix_sums(of_areas, 1, K)[K - 1]
        mean = prefix_sums(of_exps, 1, K)[K - 1]
    else:
        before, after, own = raw
        of_outside = height_grads[0] * (scale * before[1] + FLOOR * before[2])
        of_outside += height_grads[1] * (scale * after[1] + FLOOR * after[2])
        of_area += of_outside
        of_area += height_grads[2] * (scale * own[0] + FLOOR) * own[2]
        mean = (width_grads[0] + UNIFORM * height_grads[0]) * before[0] + share * height_grads[0] * before[1]
        mean += (width_grads[1] + UNIFORM * height_grads[1]) * after[0] + share * height_grads[1] * after[1]
        mean += (width_grads[2] + UNIFORM * height_grads[2]) * own[0] + share * height_grads[2] * own[1]
    of_area *= -share / area
    mean = (mean + of_area * totals[1]) / totals[0]
    terms = (scale, share, of_area, mean)
    axes = (width_grads, height_grads)
    zero = tl.zeros_like(area)

    if CHUNK == 0:
        knots = (bin, low, high)
        of_widths, of_vertices, below = bin_grads(
            (exps, vertices, middles), (zero, zero), 0, bin, axes, knots, terms, flipped, K, FLOOR, UNIFORM, CHUNK, K
        )
        last = vertices[K] * (share * (knot_grad(K, knots) + below[1]) + of_area * below[0])
        of_params = flip(of_widths, flipped, 0, K) + flip(of_vertices + (last,), flipped, 0, K + 1)
        store_columns(out, exists, of_params, COUNT, DIMS, ACCESS, BLOCK)
    else:
        # Counted in the order of params: the bin, and the gradients of the densities at its two vertices.
        where = tl.where(flipped, K - 1 - bin, bin)
        upper = tl.where(flipped, low, high)
        knots = (where, tl.where(flipped, high, low), upper)
        half_below = zero
        grad_below = zero
        for c in range(chunks):
            first = c * CHUNK
            at = tl.zeros((BLOCK,), tl.int32) + first
            values = bin_values(load_bins(params, at, K, CHUNK, ACCESS, BLOCK), tops, at, K, CHUNK)
            below = (half_below, grad_below)
            of_widths, of_vertices, below = bin_grads(
                values, below, first, bin, axes, knots, terms, flipped, K, FLOOR, UNIFORM, CHUNK, CHUNK
            )
            half_below, grad_below = below
            store_chunk(out, exists, of_widths, first, 0, K, CHUNK, DIMS, ACCESS, BLOCK)
            store_chunk(out, exists, of_vertices, first, K, K, CHUNK, DIMS, ACCESS, BLOCK)
        # The last vertex belongs to one bin only.
        pointer, rows, stride = params
        half = (scale * exp_below(tl.load(pointer + (rows + (K - 1) * stride)), tops[0]) + FLOOR) * 0.5
        vertex = exp_below(tl.load(pointer + (rows + 2 * K * stride)), tops[1])
        of_height = softmax_weight(tl.where(flipped, 0, K - 1), bin, height_grads)
        of_density = tl.where(where == K - 1, upper, 0.0) + half * of_height
        store_column(out, exists, vertex * (share * of_density + of_area * half), 2 * K, DIMS)
