"""Affine and additive maps with the contract of the splines: (y, log_slope), and all-zero params the identity.

They make Real NVP and NICE out of the same coupling layer, and MAF out of the same autoregressive one.
"""

from __future__ import annotations

import torch
from torch import Tensor

# The log-scale is squashed into (-LOG_SCALE_BOUND, LOG_SCALE_BOUND): one layer then scales by at most e^5, and no stack
# of them overflows on its first wild step.
LOG_SCALE_BOUND = 5.0


def affine(x: Tensor, params: Tensor, *, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """y = x exp(s) + t with params (t, p) in the last axis and s = 5 tanh(p / 5).

    >>> affine(torch.tensor(2.0), torch.tensor([1.0, 0.0]))
    (tensor(3.), tensor(0.))
    """
    _check_size("affine", params, 2)
    shift, raw = params[..., 0], params[..., 1]
    log_scale = LOG_SCALE_BOUND * torch.tanh(raw / LOG_SCALE_BOUND)
    if inverse:
        return (x - shift) * torch.exp(-log_scale), (-log_scale).expand_as(x + shift)
    return x * torch.exp(log_scale) + shift, log_scale.expand_as(x + shift)


def additive(x: Tensor, params: Tensor, *, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """y = x + t with params (t,) in the last axis.

    >>> additive(torch.tensor(2.0), torch.tensor([1.0]))
    (tensor(3.), tensor(0.))
    """
    _check_size("additive", params, 1)
    shift = params[..., 0]
    y = x - shift if inverse else x + shift
    return y, torch.zeros_like(y)


def _check_size(name: str, params: Tensor, size: int) -> None:
    if params.shape[-1] != size:
        raise ValueError(f"the last axis of params has size {params.shape[-1]}, but an {name} map needs {size}")
