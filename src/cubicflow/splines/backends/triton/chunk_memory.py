# mypy: ignore-errors
# ruff: noqa: N803, RET505, RUF005
"""Load a few params of one axis at a time, and store their gradients."""

from __future__ import annotations

import triton
import triton.language as tl

from cubicflow.splines.backends.triton.columns import columns_to_tile, tile_to_columns
from cubicflow.splines.backends.triton.places import COLUMNS, SHARED


@triton.jit
def load_chunk(
    pointer,
    rows,
    stride,
    first,
    START: tl.constexpr,
    K: tl.constexpr,
    CHUNK: tl.constexpr,
    ACCESS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return CHUNK logits of the axis whose params start at START. Each element starts at its own `first`. Logits past
    the end are -inf."""
    if ACCESS == COLUMNS:
        columns = ()
        for j in tl.static_range(CHUNK):
            at = first + j
            logit = tl.load(pointer + (rows + (START + at) * stride), mask=at < K, other=float("-inf"))
            columns = columns + (logit,)
        return columns
    else:
        at = first[None, :] + tl.arange(0, CHUNK)[:, None]
        offsets = rows[None, :] + (START + at)
        if K % CHUNK == 0:
            tile = tl.load(pointer + offsets)
        else:
            tile = tl.load(pointer + offsets, mask=at < K, other=float("-inf"))
        return tile_to_columns(tile, CHUNK, BLOCK)


@triton.jit
def store_chunk(
    pointer,
    rows,
    stride,
    exists,
    grads,
    first,
    START: tl.constexpr,
    K: tl.constexpr,
    CHUNK: tl.constexpr,
    DIMS: tl.constexpr,
    ACCESS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store CHUNK gradients of the axis. Gradients of a shared spline are summed over the elements."""
    if DIMS == SHARED:
        at = first + tl.arange(0, CHUNK)
        tl.store(pointer + START + at, tl.sum(columns_to_tile(grads, 0, CHUNK, CHUNK, BLOCK), axis=1), mask=at < K)
    elif ACCESS == COLUMNS:
        for j in tl.static_range(CHUNK):
            at = tl.zeros((BLOCK,), tl.int32) + (first + j)
            tl.store(pointer + (rows + (START + at) * stride), grads[j], mask=exists & (at < K))
    else:
        at = first + tl.arange(0, CHUNK)[:, None]
        tile = columns_to_tile(grads, 0, CHUNK, CHUNK, BLOCK)
        tl.store(pointer + (rows[None, :] + (START + at)), tile, mask=exists[None, :] & (at < K))
