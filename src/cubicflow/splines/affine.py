"""Affine, additive and leaky maps. Like the splines, they return (y, log_slope), and all-zero params are the identity.

A coupling layer with the affine map is Real NVP, and with the additive map NICE. An autoregressive layer with the
affine map is MAF. All maps compute in the widest of float32 and the dtypes of x and params. y has x's dtype, and
log_slope is at least float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cubicflow.splines.functions import inner_dtype
from cubicflow.splines.spec import check_floating

# The log-scale is squashed into (-LOG_SCALE_BOUND, LOG_SCALE_BOUND). One layer then scales by at most e^5, so a stack
# of layers does not overflow after a single large optimiser step.
LOG_SCALE_BOUND = 5.0


def affine(
    x: Tensor, params: Tensor, *, inverse: bool = False, log_scale_bound: float = LOG_SCALE_BOUND
) -> tuple[Tensor, Tensor]:
    """Return y = x exp(s) + t and its log-slope s, where s = b tanh(p / b) and b is ``log_scale_bound``.

    The last axis of params is (t, p). With ``inverse``, return x = (y - t) exp(-s) and -s.

    >>> affine(torch.tensor(2.0), torch.tensor([1.0, 0.0]))
    (tensor(3.), tensor(0.))
    """
    check_params("an affine map", x, params, 2)
    dtype = inner_dtype(x, params)
    wide, (shift, raw) = x.to(dtype), params.to(dtype).unbind(-1)
    log_scale = log_scale_bound * torch.tanh(raw / log_scale_bound)
    if inverse:
        y, log_slope = (wide - shift) * torch.exp(-log_scale), -log_scale
    else:
        y, log_slope = wide * torch.exp(log_scale) + shift, log_scale
    return y.to(x.dtype), log_slope.expand_as(y)


def additive(x: Tensor, params: Tensor, *, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """Return y = x + t and its log-slope 0. The last axis of params is (t,). With ``inverse``, return x = y - t.

    >>> additive(torch.tensor(2.0), torch.tensor([1.0]))
    (tensor(3.), tensor(0.))
    """
    check_params("an additive map", x, params, 1)
    dtype = inner_dtype(x, params)
    wide, shift = x.to(dtype), params[..., 0].to(dtype)
    y = wide - shift if inverse else wide + shift
    return y.to(x.dtype), torch.zeros_like(y)


def leaky_relu(x: Tensor, params: Tensor, *, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """Return y = x for x >= 0 and y = x exp(s) below, and its log-slope, where s = b tanh(p / b) and b is
    ``LOG_SCALE_BOUND``. The last axis of params is (p,). With ``inverse``, return x for y, and the log-slope at y.

    >>> leaky_relu(torch.tensor([2.0, -2.0]), torch.tensor([0.5]).log())[0]
    tensor([ 2.0000, -1.0044])
    """
    check_params("a leaky relu", x, params, 1)
    dtype = inner_dtype(x, params)
    wide, raw = x.to(dtype), params[..., 0].to(dtype)
    below = LOG_SCALE_BOUND * torch.tanh(raw / LOG_SCALE_BOUND) * (-1 if inverse else 1)
    log_slope = torch.where(wide < 0, below, 0.0)
    return (wide * torch.exp(log_slope)).to(x.dtype), log_slope


def check_params(name: str, x: Tensor, params: Tensor, size: int) -> None:
    """Raise an error unless x and params are floating-point and the last axis of params has this size.

    >>> check_params("an affine map", torch.zeros(2), torch.zeros(2, 3), 2)
    Traceback (most recent call last):
    ...
    ValueError: the last axis of params has size 3, but an affine map needs 2
    """
    check_floating("x", x)
    check_floating("params", params)
    if not params.ndim:
        raise ValueError(f"params must have at least one axis: the last one holds the {size} params of {name}")
    if params.shape[-1] != size:
        raise ValueError(f"the last axis of params has size {params.shape[-1]}, but {name} needs {size}")
