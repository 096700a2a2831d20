# mypy: ignore-errors
# ruff: noqa: N803
"""What follows the backward pass of a training step, as three kernels: norm, clip, check, Adam, average and record.

As operations of torch these are some thirty kernels in a chain, most of them on single numbers.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from cubicflow.training.optimiser import BETA1, EPSILON
from cubicflow.training.step import TINY, Step

BLOCK = 4096  # elements that a program handles at a time
MAX_SUMS = 1024  # partial sums of squares, which one program adds


def update(step: Step, gradient: Tensor, loss: Tensor) -> Tensor:
    """Compute :meth:`cubicflow.training.step.Step.finish` for weights that are one vector."""
    (weights,), ((adam_count,), (mean,), (square,)) = step.adam.tensors, step.adam.moments.values()
    averages = None if step.averages is None else step.averages.tensors[0]
    size, beta2, clip_norm = gradient.numel(), step.adam.beta2, step.config.clip_norm
    blocks = triton.cdiv(size, BLOCK)
    sums = torch.empty(min(blocks, MAX_SUMS), dtype=torch.float64, device=gradient.device)
    factors = torch.empty(5, dtype=torch.float32, device=gradient.device)
    bad = torch.empty((), dtype=torch.bool, device=gradient.device)
    add_squares[(len(sums),)](gradient, sums, size, BLOCK=BLOCK)
    record[(1,)](
        sums, len(sums), loss, step.learning_rate, step.averaging_weight, step.count, step.failed_at, step.loss_sum,
        step.gradient_norm, adam_count, factors, bad, math.inf if clip_norm is None else clip_norm,
        step.adam.weight_decay, LOG_BETA1=math.log(BETA1), LOG_BETA2=math.log(beta2), TINY=TINY, SUMS=MAX_SUMS,
    )  # fmt: skip
    move[(blocks,)](
        weights, gradient, mean, square, weights if averages is None else averages, factors, bad, size, 1 - BETA1,
        1 - beta2, EPSILON=EPSILON, AVERAGES=averages is not None, BLOCK=BLOCK,
    )  # fmt: skip
    return bad


@triton.jit
def add_squares(gradient, sums, size, BLOCK: tl.constexpr):
    """Write the sum of the squares of every program's elements."""
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(tl.program_id(0) * BLOCK, size, tl.num_programs(0) * BLOCK):
        place = first + tl.arange(0, BLOCK)
        x = tl.load(gradient + place, mask=place < size, other=0)
        total += x * x
    tl.store(sums + tl.program_id(0), tl.sum(total.to(tl.float64), 0))


@triton.jit
def record(
    sums, num_sums, loss, learning_rate, averaging_weight, count, failed_at, loss_sum, gradient_norm, adam_count,
    factors, bad, clip_norm, weight_decay, LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr, TINY: tl.constexpr,
    SUMS: tl.constexpr,
):  # fmt: skip
    """Check and record the step, and write the factors by which ``move`` changes every element."""
    place = tl.arange(0, SUMS)
    norm = tl.sqrt(tl.sum(tl.load(sums + place, mask=place < num_sums, other=0), 0))
    value = tl.load(loss).to(tl.float64)
    number, failed = tl.load(count), tl.load(failed_at)
    finite = tl.abs(value + norm) < float("inf")  # false for NaN
    good = finite & (failed < 0)
    steps = tl.load(adam_count).to(tl.float64) + 1
    rate = tl.load(learning_rate).to(tl.float64)

    tl.store(failed_at, tl.where(finite | (failed >= 0), failed, number))
    tl.store(count, number + 1)
    tl.store(loss_sum, tl.load(loss_sum) + tl.where(good, value, 0.0))
    tl.store(gradient_norm, norm)
    tl.store(adam_count, tl.where(good, steps, steps - 1).to(adam_count.dtype.element_ty))
    tl.store(bad, ~good)

    clipped = tl.minimum(clip_norm / (tl.where(good, norm, 0.0) + TINY), 1.0)
    tl.store(factors, clipped.to(tl.float32))
    tl.store(factors + 1, (rate / (1 - tl.exp(steps * LOG_BETA1))).to(tl.float32))
    tl.store(factors + 2, (1 / tl.sqrt(1 - tl.exp(steps * LOG_BETA2))).to(tl.float32))
    tl.store(factors + 3, (1 - rate * weight_decay).to(tl.float32))
    tl.store(factors + 4, tl.load(averaging_weight).to(tl.float32))


@triton.jit
def move(
    weights, gradient, mean, square, averages, factors, bad, size, mean_share, square_share,
    EPSILON: tl.constexpr, AVERAGES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Change the weights by Adam with the clipped gradient, and move the averages towards them."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = (place < size) & (tl.load(bad) == 0)
    g = tl.load(gradient + place, mask=here, other=0) * tl.load(factors)
    m = tl.load(mean + place, mask=here, other=0)
    v = tl.load(square + place, mask=here, other=0)
    w = tl.load(weights + place, mask=here, other=0)
    m += mean_share * (g - m)
    v += square_share * (g * g - v)
    w = w * tl.load(factors + 3) - tl.load(factors + 1) * m / (tl.sqrt(v) * tl.load(factors + 2) + EPSILON)
    tl.store(mean + place, m, mask=here)
    tl.store(square + place, v, mask=here)
    tl.store(weights + place, w, mask=here)
    if AVERAGES:
        share = tl.load(factors + 4)
        average = tl.load(averages + place, mask=here, other=0)
        # The second form is exact for a share of 1.
        near = tl.where(share < 0.5, average + share * (w - average), w - (1 - share) * (w - average))
        tl.store(averages + place, near, mask=here)
