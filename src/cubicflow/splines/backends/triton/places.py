# mypy: ignore-errors
# ruff: noqa: N803, RET505
"""Which elements a program takes, and where their params lie.

Elements are numbered in the order of the output, which is contiguous. Their params lie at the strides of up to three
axes. In a backward pass over splines that are shared (DIMS == SHARED) a program takes elements of one spline, so that
it can sum over them: programs count first through the splines, then through blocks of the elements that share one, and
there are up to two axes of either.
"""

from __future__ import annotations

import triton
import triton.language as tl

SHARED = tl.constexpr(0)
# Two ways to bring params in: one parameter at a time, or as tiles, where they are packed in the elements' order.
COLUMNS, TILE = (tl.constexpr(way) for way in range(2))

# The kernels' numbers, of which none is to be compiled in: a batch of another size runs the same kernel.
FORWARD_NUMBERS = ["count", "splines", "size_1", "size_2", "stride_0", "stride_1", "stride_2", "stride_k"]
BACKWARD_NUMBERS = [*FORWARD_NUMBERS, "out_0", "out_1", "out_2", "out_k"]


@triton.jit
def two_axes(index, size_1, stride_0, stride_1):
    index = index.to(tl.int64)
    return (index // size_1) * stride_0 + (index % size_1) * stride_1


@triton.jit
def place(
    count,
    splines,
    size_1,
    size_2,
    spline_0,
    spline_1,
    member_0,
    member_1,
    DIMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The numbers of a program's elements, and which of them exist; for those that do not, the last one stands in.

    `count` is the number of elements, or of those that share a spline. The strides are counted in elements: size_1
    splines lie along their inner axis, and size_2 of the elements that share one."""
    if DIMS == SHARED:
        member = (tl.program_id(0) // splines) * BLOCK + tl.arange(0, BLOCK)
        exists = member < count
        member = tl.minimum(member, count - 1)
        spline = two_axes(tl.program_id(0) % splines, size_1, spline_0, spline_1)
        return spline + two_axes(member, size_2, member_0, member_1), exists
    else:
        element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        return tl.minimum(element, count - 1), element < count


@triton.jit
def place_rows(
    pointer,
    element,
    count,
    splines,
    size_1,
    size_2,
    stride_0,
    stride_1,
    stride_2,
    DIMS: tl.constexpr,
    COUNT: tl.constexpr,
    WAY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A pointer, and from it the offsets of the elements' params."""
    if DIMS == SHARED:
        start = two_axes(tl.program_id(0) % splines, size_1, stride_0, stride_1)
        return pointer + start, 0  # of all elements: params are then read as single numbers
    elif WAY == TILE:  # 32-bit offsets from where the program's params start
        start = tl.program_id(0) * BLOCK
        return pointer + start.to(tl.int64) * COUNT, tl.minimum(tl.arange(0, BLOCK), count - 1 - start) * COUNT
    elif DIMS == 1:
        return pointer, element.to(tl.int64) * stride_0
    elif DIMS == 2:
        return pointer, two_axes(element, size_1, stride_0, stride_1)
    else:
        outer = two_axes(element // size_2, size_1, stride_0, stride_1)
        return pointer, outer + (element % size_2).to(tl.int64) * stride_2
