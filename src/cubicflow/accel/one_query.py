# mypy: ignore-errors
# ruff: noqa: N803
"""Attention of one token to those before it, the step that samples an autoregressive flow.

A kernel for whole sequences works on tiles of 64 queries and fills one row of them. Here a program has one row and
head: it reads the keys and the values once and keeps everything else in registers.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_TOKENS, MOST_FEATURES = 256, 256  # whose tile fits into registers
MOST_ELEMENTS = 256 * 64


def can_attend(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether the kernel takes these."""
    tokens, features = (triton.next_power_of_2(size) for size in keys.shape[2:])
    fits = tokens <= MOST_TOKENS and features <= MOST_FEATURES and tokens * features <= MOST_ELEMENTS
    dtypes = {queries.dtype, keys.dtype, values.dtype}
    return (
        fits and len(dtypes) == 1 and dtypes <= set(DTYPES) and queries.numel() > 0 and keys.stride() == values.stride()
    )


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """(N, heads, 1, features), the softmax of products with the keys, (N, heads, T, features), over the values."""
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
    # A score that is NaN makes the maximum of the others, and the sum NaN: the NaN of a row stays visible in that row.
    weights = tl.exp(scores - tl.max(scores, 0))
    result = tl.sum(weights[:, None] * value, 0) / tl.sum(weights, 0)
    tl.store(found + program * FEATURES + feature, result.to(found.dtype.element_ty), mask=inside)
