# mypy: ignore-errors
# ruff: noqa: N803, RET505
"""Find the elements of a program and the addresses of their params.

Elements are numbered in the order of the output, which is contiguous. Their params have strides along up to three axes.
In a backward pass over shared splines (DIMS == SHARED) a program handles elements of one spline, so that it can sum
over them. Program numbers run first over the splines, then over blocks of the elements that share a spline. Splines and
elements have up to two axes each.

`sizes` is (count, splines, size_1, size_2): the number of elements, or of elements that share a spline; the number of
splines; the sizes of two inner axes. With DIMS == SHARED, size_1 is an axis of the splines, and size_2 is an axis of
the elements that share a spline. Strides are in elements.
"""

from __future__ import annotations

import triton
import triton.language as tl

SHARED = tl.constexpr(0)
# Two ways to load params: one parameter at a time, or as tiles if params are packed in the order of the elements.
COLUMNS, TILE = (tl.constexpr(way) for way in range(2))


@triton.jit
def two_axes(index, size_1, stride_0, stride_1):
    index = index.to(tl.int64)
    return (index // size_1) * stride_0 + (index % size_1) * stride_1


@triton.jit
def place_elements(sizes, strides, DIMS, BLOCK):
    """Return the numbers of a program's elements, and a mask of the elements that exist. A missing element gets the
    number of the last element.

    `strides` are those of the splines, and those of the elements that share a spline, if DIMS == SHARED.
    """
    if DIMS == SHARED:
        member = (tl.program_id(0) // sizes[1]) * BLOCK + tl.arange(0, BLOCK)
        exists = member < sizes[0]
        member = tl.minimum(member, sizes[0] - 1)
        spline = two_axes(tl.program_id(0) % sizes[1], sizes[2], strides[0], strides[1])
        return spline + two_axes(member, sizes[3], strides[2], strides[3]), exists
    else:
        element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        return tl.minimum(element, sizes[0] - 1), element < sizes[0]


@triton.jit
def place_values(element, WIDTH, ROW, STEP, OFFSET):
    """Return where the elements' inputs and outputs are, and where the gradients of their log-slopes are.

    With WIDTH == 0 all are contiguous. Otherwise the elements are a slice of every row: see ``RowSlice`` in
    ``launch.py``. The log-slopes of a row are then summed, so a row has one gradient.
    """
    if WIDTH == 0:
        return element, element
    else:
        row = element // WIDTH
        return row * ROW + (element % WIDTH) * STEP + OFFSET, row


@triton.jit
def place_params(pointer, element, sizes, strides, DIMS, COUNT, ACCESS, BLOCK):
    """Return (pointer, rows, stride): `rows` are the offsets of the elements' params from the pointer, and `stride` is
    the distance from one parameter to the next."""
    stride = strides[3]
    if DIMS == SHARED:
        start = two_axes(tl.program_id(0) % sizes[1], sizes[2], strides[0], strides[1])
        return pointer + start, 0, stride  # all elements have the same offset, so params are read as scalars
    elif ACCESS == TILE:  # 32-bit offsets from the program's first param
        start = tl.program_id(0) * BLOCK
        pointer += start.to(tl.int64) * COUNT
        return pointer, tl.minimum(tl.arange(0, BLOCK), sizes[0] - 1 - start) * COUNT, stride
    elif DIMS == 1:
        return pointer, element.to(tl.int64) * strides[0], stride
    elif DIMS == 2:
        return pointer, two_axes(element, sizes[2], strides[0], strides[1]), stride
    else:
        outer = two_axes(element // sizes[3], sizes[2], strides[0], strides[1])
        return pointer, outer + (element % sizes[3]).to(tl.int64) * strides[2], stride


@triton.jit
def place_grads(out, DIMS, COUNT, ACCESS, BLOCK):
    """Return (pointer, rows, stride) of the gradients of params. `out` has the first arguments of
    :func:`place_params`. For shared splines, each program writes one row of sums."""
    if DIMS == SHARED:
        return out[0] + tl.program_id(0).to(tl.int64) * COUNT, 0, 1
    else:
        return place_params(out[0], out[1], out[2], out[3], DIMS, COUNT, ACCESS, BLOCK)
