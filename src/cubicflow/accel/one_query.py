# mypy: ignore-errors
# ruff: noqa: N803
"""Attention of one token to the tokens before it: one step of sampling from an autoregressive flow.

A kernel for whole sequences works on tiles of 64 queries, and a single query would fill one row of a tile. In this
kernel a program handles one row of the batch and one head. It reads the keys and values once and keeps everything else
in registers.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MAX_TOKENS, MAX_FEATURES = 256, 256  # tokens and features per head; larger tiles do not fit the registers
MAX_ELEMENTS = 256 * 64  # tokens x features per head


def can_attend(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Return whether the kernel supports these tensors."""
    tokens, features = (triton.next_power_of_2(size) for size in keys.shape[2:])
    fits = tokens <= MAX_TOKENS and features <= MAX_FEATURES and tokens * features <= MAX_ELEMENTS
    dtypes = {queries.dtype, keys.dtype, values.dtype}
    return (
        fits and len(dtypes) == 1 and dtypes <= set(DTYPES) and queries.numel() > 0 and keys.stride() == values.stride()
    )


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the attention of queries (N, heads, 1, features) to keys and values (N, heads, T, features)."""
    rows, heads, tokens, features = keys.shape
    queries = queries.contiguous()
    found = torch.empty_like(queries)
    one_query_attention[(rows * heads,)](
        queries, keys, values, found, heads, tokens, 1 / math.sqrt(features), *keys.stride(), FEATURES=features,
        TOKENS=triton.next_power_of_2(tokens), WIDTH=triton.next_power_of_2(features),
        num_warps=4 if tokens * features > 2048 else 1,
    )  # fmt: skip
    return found


@triton.jit
def one_query_attention(
    queries, keys, values, found, heads, tokens, scale, row_stride, head_stride, token_stride, feature_stride,
    FEATURES: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    first = (program // heads) * row_stride + (program % heads) * head_stride
    token, feature = tl.arange(0, TOKENS), tl.arange(0, WIDTH)
    seen, inside = token < tokens, feature < FEATURES
    here = seen[:, None] & inside[None, :]
    place = first + token[:, None] * token_stride + feature[None, :] * feature_stride
    query = tl.load(queries + program * FEATURES + feature, mask=inside, other=0).to(tl.float32)
    key = tl.load(keys + place, mask=here, other=0).to(tl.float32)
    value = tl.load(values + place, mask=here, other=0).to(tl.float32)
    scores = tl.where(seen, tl.sum(key * query[None, :], 1) * scale, float("-inf"))
    # tl.max ignores a NaN score, but the NaN then makes the sum NaN. So a NaN stays visible in its own row.
    weights = tl.exp(scores - tl.max(scores, 0))
    result = tl.sum(weights[:, None] * value, 0) / tl.sum(weights, 0)
    tl.store(found + program * FEATURES + feature, result.to(found.dtype.element_ty), mask=inside)
