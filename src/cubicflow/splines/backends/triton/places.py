# mypy: ignore-errors
# ruff: noqa: N803, RET505
"""Find the elements of a program and the addresses of their params.

Elements are numbered in the order of the output, which is contiguous. Their params have strides along up to three axes.
In a backward pass over shared splines (DIMS == SHARED) a program handles elements of one spline, so that it can sum
over them. Program numbers run first over the splines, then over blocks of the elements that share a spline. Splines and
elements have up to two axes each.
"""

from __future__ import annotations

import triton
import triton.language as tl

SHARED = tl.constexpr(0)
# Two ways to load params: one parameter at a time, or as tiles if params are packed in the order of the elements.
COLUMNS, TILE = (tl.constexpr(way) for way in range(2))

# The integer arguments of the kernels. They stay run-time values, so that a batch of another size runs the same kernel.
FORWARD_INTEGERS = ["count", "splines", "size_1", "size_2", "stride_0", "stride_1", "stride_2", "stride_k"]
BACKWARD_INTEGERS = [*FORWARD_INTEGERS, "out_0", "out_1", "out_2", "out_k"]


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
    """Return the numbers of a program's elements, and a mask of the elements that exist. A missing element gets the
    number of the last element.

    `count` is the number of elements, or of elements that share a spline. Strides are in elements. The inner axis of
    the splines has size_1 splines. The inner axis of the elements that share a spline has size_2 elements.
    """
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
    ACCESS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return a pointer, and the offsets of the elements' params from the pointer."""
    if DIMS == SHARED:
        start = two_axes(tl.program_id(0) % splines, size_1, stride_0, stride_1)
        return pointer + start, 0  # all elements have the same offset, so params are read as scalars
    elif ACCESS == TILE:  # 32-bit offsets from the program's first param
        start = tl.program_id(0) * BLOCK
        return pointer + start.to(tl.int64) * COUNT, tl.minimum(tl.arange(0, BLOCK), count - 1 - start) * COUNT
    elif DIMS == 1:
        return pointer, element.to(tl.int64) * stride_0
    elif DIMS == 2:
        return pointer, two_axes(element, size_1, stride_0, stride_1)
    else:
        outer = two_axes(element // size_2, size_1, stride_0, stride_1)
        return pointer, outer + (element % size_2).to(tl.int64) * stride_2
