# mypy: ignore-errors
# ruff: noqa: N803
"""The sum, the dropout and the layer norm between two branches of a transformer, as one kernel in each direction.

All three operations are limited by memory bandwidth. As separate kernels they read and write the stream of tokens three
times. One kernel reads and writes it once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from cubicflow.nets.products import dropout_mask

DTYPES = (torch.float32, torch.bfloat16)
MAX_FEATURES = 4096  # features; a longer row does not fit the registers of one program
ELEMENTS_AT_ONCE = 2048  # elements that a program handles in one iteration of its loop
PROGRAMS_PER_PROCESSOR = 4  # programs of the backward pass per multiprocessor; each program writes one row of sums


def can_fuse(stream: Tensor, added: Tensor | None, norm: nn.LayerNorm, dtype: torch.dtype) -> bool:
    """Return whether the kernels support these arguments."""
    dtypes = {stream.dtype, norm.weight.dtype, dtype} | ({added.dtype} if added is not None else set())
    return stream.is_cuda and dtypes <= set(DTYPES) and stream.shape[-1] <= MAX_FEATURES and stream.numel() > 0


def add_norm(
    stream: Tensor, added: Tensor | None, norm: nn.LayerNorm, dtype: torch.dtype, dropout: float
) -> tuple[Tensor, Tensor]:
    """Compute :meth:`cubicflow.nets.products.Products.add_norm`, with the same random numbers."""
    mask = dropout_mask(added, dropout) if dropout and added is not None else None
    total, normed = _AddNorm.apply(stream, added, mask, norm.weight, norm.bias, norm.eps, dropout, dtype)
    return total, normed


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, stream, added, mask, weight, bias, eps, dropout, dtype):
        stream = stream.contiguous()
        features, rows = stream.shape[-1], stream.numel() // stream.shape[-1]
        total = stream.view_as(stream) if added is None else torch.empty_like(stream)
        normed = torch.empty(stream.shape, dtype=dtype, device=stream.device)
        centres, scales = (torch.empty(rows, dtype=torch.float32, device=stream.device) for _ in range(2))
        at_once = _rows_at_once(features)
        add_norm_forward[(triton.cdiv(rows, at_once),)](
            stream, stream if added is None else added.contiguous(), stream if mask is None else mask, weight, bias,
            total, normed, centres, scales, rows, eps, 1 / (1 - dropout), FEATURES=features,
            WIDTH=triton.next_power_of_2(features), AT_ONCE=at_once, ADDS=added is not None, MASKED=mask is not None,
        )  # fmt: skip
        ctx.save_for_backward(total, mask, weight, centres, scales)
        ctx.dropout, ctx.added_dtype = dropout, None if added is None else added.dtype
        return total, normed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_total, grad_normed):
        total, mask, weight, centres, scales = ctx.saved_tensors
        grad_total, grad_normed = grad_total.contiguous(), grad_normed.contiguous()
        features, rows = total.shape[-1], total.numel() // total.shape[-1]
        grad_stream = torch.empty_like(total)
        grad_added = None
        if ctx.added_dtype is not None:
            grad_added = torch.empty(total.shape, dtype=ctx.added_dtype, device=total.device)
        processors = torch.cuda.get_device_properties(total.device).multi_processor_count
        at_once = _rows_at_once(features)
        programs = min(PROGRAMS_PER_PROCESSOR * processors, triton.cdiv(rows, at_once))
        sums = torch.empty(2, programs, features, dtype=torch.float32, device=total.device)
        add_norm_backward[(programs,)](
            grad_total, grad_normed, total, total if mask is None else mask, weight, centres, scales, grad_stream,
            total if grad_added is None else grad_added, sums, rows, 1 / (1 - ctx.dropout), FEATURES=features,
            WIDTH=triton.next_power_of_2(features), AT_ONCE=at_once, ADDS=grad_added is not None,
            MASKED=mask is not None,
        )  # fmt: skip
        grad_weight, grad_bias = sums.sum(1).to(weight.dtype).unbind(0)
        return grad_stream, grad_added, None, grad_weight, grad_bias, None, None, None


def _rows_at_once(features: int) -> int:
    return max(1, ELEMENTS_AT_ONCE // triton.next_power_of_2(features))


@triton.jit
def add_norm_forward(
    stream, added, mask, weight, bias, total, normed, centres, scales, rows, eps, factor,
    FEATURES: tl.constexpr, WIDTH: tl.constexpr, AT_ONCE: tl.constexpr, ADDS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * AT_ONCE + tl.arange(0, AT_ONCE)
    column = tl.arange(0, WIDTH)
    here = (row < rows)[:, None] & (column < FEATURES)[None, :]
    place = row[:, None] * FEATURES + column[None, :]
    x = tl.load(stream + place, mask=here, other=0).to(tl.float32)
    if ADDS:
        more = tl.load(added + place, mask=here, other=0).to(tl.float32)
        if MASKED:
            more = tl.where(tl.load(mask + place, mask=here, other=0) != 0, more * factor, 0.0)
        x += more
        tl.store(total + place, x.to(total.dtype.element_ty), mask=here)
    centre = tl.sum(x, 1) / FEATURES
    offset = tl.where(here, x - centre[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(offset * offset, 1) / FEATURES + eps)
    tl.store(centres + row, centre, mask=row < rows)
    tl.store(scales + row, scale, mask=row < rows)
    w = tl.load(weight + column, mask=column < FEATURES, other=0).to(tl.float32)
    b = tl.load(bias + column, mask=column < FEATURES, other=0).to(tl.float32)
    y = offset * scale[:, None] * w[None, :] + b[None, :]
    tl.store(normed + place, y.to(normed.dtype.element_ty), mask=here)


@triton.jit
def add_norm_backward(
    grad_total, grad_normed, total, mask, weight, centres, scales, grad_stream, grad_added, sums, rows, factor,
    FEATURES: tl.constexpr, WIDTH: tl.constexpr, AT_ONCE: tl.constexpr, ADDS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, WIDTH)
    inside = column < FEATURES
    w = tl.load(weight + column, mask=inside, other=0).to(tl.float32)
    # The sums over rows are reduced at the end: a reduction across threads in every iteration would dominate the time.
    weight_sum = tl.zeros([AT_ONCE, WIDTH], tl.float32)
    bias_sum = tl.zeros([AT_ONCE, WIDTH], tl.float32)
    for first in range(tl.program_id(0) * AT_ONCE, rows, tl.num_programs(0) * AT_ONCE):
        row = first + tl.arange(0, AT_ONCE).to(tl.int64)
        here = (row < rows)[:, None] & inside[None, :]
        place = row[:, None] * FEATURES + column[None, :]
        centre = tl.load(centres + row, mask=row < rows, other=0)
        scale = tl.load(scales + row, mask=row < rows, other=0)
        x = tl.load(total + place, mask=here, other=0).to(tl.float32)
        unit = tl.where(here, (x - centre[:, None]) * scale[:, None], 0.0)  # the norm before weight and bias
        grad = tl.load(grad_normed + place, mask=here, other=0).to(tl.float32)
        weight_sum += grad * unit
        bias_sum += grad
        grad = grad * w[None, :]
        mean = tl.sum(grad, 1) / FEATURES
        mean_unit = tl.sum(grad * unit, 1) / FEATURES
        back = (grad - mean[:, None] - unit * mean_unit[:, None]) * scale[:, None]
        back += tl.load(grad_total + place, mask=here, other=0).to(tl.float32)
        tl.store(grad_stream + place, back.to(grad_stream.dtype.element_ty), mask=here)
        if ADDS:
            if MASKED:
                back = tl.where(tl.load(mask + place, mask=here, other=0) != 0, back * factor, 0.0)
            tl.store(grad_added + place, back.to(grad_added.dtype.element_ty), mask=here)
    here = tl.program_id(0) * FEATURES + column
    tl.store(sums + here, tl.sum(weight_sum, 0), mask=inside)
    tl.store(sums + tl.num_programs(0) * FEATURES + here, tl.sum(bias_sum, 0), mask=inside)
