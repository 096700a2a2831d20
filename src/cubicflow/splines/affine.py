"""Affine and additive maps. Like the splines, they return (y, log_slope), and all-zero params are the identity.

A coupling layer with the affine map is Real NVP, and with the additive map NICE. An autoregressive layer with the
affine map is MAF. Both maps compute in the widest of float32 and the dtypes of x and params. y has x's dtype, and
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
    _check("affine", x, params, 2)
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
    _check("additive", x, params, 1)
    dtype = inner_dtype(x, params)
    wide, shift = x.to(dtype), params[..., 0].to(dtype)
    y = wide - shift if inverse else wide + shift
    return y.to(x.dtype), torch.zeros_like(y)


def _check(name: str, x: Tensor, params: Tensor, size: int) -> None:
    check_floating("x", x)
    check_floating("params", params)
    if not params.ndim:
        raise ValueError(f"params must have at least one axis: the last one holds the {size} params of an {name} map")
    if params.shape[-1] != size:
        raise ValueError(f"the last axis of params has size {params.shape[-1]}, but an {name} map needs {size}")
