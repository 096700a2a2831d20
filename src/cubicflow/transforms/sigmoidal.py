"""The element maps of neural autoregressive flows: small networks of sigmoids that increase in their input."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from cubicflow.nets.tracing import constant_tensor
from cubicflow.splines.affine import check_params
from cubicflow.splines.functions import inner_dtype
from cubicflow.transforms.implicit import implicit_inverse

SOFTPLUS_IS_ONE = math.log(math.e - 1)  # softplus(SOFTPLUS_IS_ONE) = 1


def num_sigmoidal_params(units: int, depth: int, *, dense: bool) -> int:
    """Return the number of params of one map.

    >>> num_sigmoidal_params(8, 2, dense=False), num_sigmoidal_params(8, 2, dense=True)
    (48, 168)
    """
    return sum(_layer_size(units, *ends) for ends in _layers(units, depth, dense=dense))


def sigmoidal(
    x: Tensor, params: Tensor, *, num_bins: int, depth: int, dense: bool, inverse: bool = False
) -> tuple[Tensor, Tensor]:
    """A deep or a dense sigmoidal flow (Huang et al. 2018, section 3.1): ``depth`` layers of ``num_bins`` units.

    A layer maps h, (..., n), to logit(w sigmoid(a * (u h) + b)), (..., m). The scales a of the units are positive. The
    rows of w, (m, units), and u, (units, n), are positive and sum to 1. The layers of a deep flow have n = m = 1. Those
    of a dense flow pass all of their units' outputs on: n and m are the number of units, except for the first n and the
    last m, which are 1.

    **A map increases from the real line onto itself.** Each step does: a mean of increasing functions increases, and
    a * (u h) + b and the logit of a mean of sigmoids tend to the same infinity as h. Therefore a map has an inverse. It
    is found by a search, some 35 evaluations in float32 and 67 in float64; see
    :func:`~cubicflow.transforms.implicit.implicit_inverse`.

    All-zero params are the identity: a = 1, b = 0, and a mean of equal sigmoids is a sigmoid. There, equal units would
    have equal gradients and stay equal. Hence the units' params b have different fixed gains, from 1/4 to 4.

    Args:
        x: elements of any shape.
        params: (..., P), for each layer a, b, w and u before softplus and softmax.

    Returns:
        (y, log_slope), each of shape broadcast(x, params[..., 0]).

    >>> x, params = torch.linspace(-3, 3, 5), torch.zeros(num_sigmoidal_params(4, 2, dense=True))
    >>> y, log_slope = sigmoidal(x, params, num_bins=4, depth=2, dense=True)
    >>> torch.allclose(y, x, atol=1e-6), torch.allclose(log_slope, torch.zeros(5), atol=1e-6)
    (True, True)
    """
    layers = _layers(num_bins, depth, dense=dense)
    check_params("a sigmoidal map", x, params, num_sigmoidal_params(num_bins, depth, dense=dense))
    dtype = inner_dtype(x, params)
    wide = x.to(dtype).expand(torch.broadcast_shapes(x.shape, params.shape[:-1]))
    settings = params.to(dtype).split([_layer_size(num_bins, *ends) for ends in layers], dim=-1)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        h, log_slopes = x[..., None], torch.zeros_like(x)[..., None]  # of every h as a function of x
        for own, ends in zip(settings, layers, strict=True):
            h, log_slopes = _layer(h, log_slopes, own, num_bins, *ends)
        return h[..., 0], log_slopes[..., 0]

    y, log_slope = implicit_inverse(function, wide) if inverse else function(wide)
    return y.to(x.dtype), log_slope


def _layer(h: Tensor, log_slopes: Tensor, params: Tensor, units: int, n: int, m: int) -> tuple[Tensor, Tensor]:
    """Return the outputs of one layer, (..., m), and the logarithms of their slopes, given h and its log-slopes, (...,
    n). All sums are of positive terms, in logarithms, so nothing cancels or overflows in the tails."""
    raw_a, raw_b, raw_w, raw_u = params.split([units, units, m * units, units * n if n > 1 else 0], dim=-1)
    if n > 1:
        u = _weights(raw_u, units, n)
        h, log_slopes = (u * h[..., None, :]).sum(-1), _log_mean(u, log_slopes)
    gains = constant_tensor([4 ** ((2 * j + 1) / units - 1) for j in range(units)], h.device, h.dtype)
    a, w = F.softplus(raw_a + SOFTPLUS_IS_ONE), _weights(raw_w, m, units)
    t = a * h + gains * raw_b  # (..., units)
    below, above = F.logsigmoid(t), F.logsigmoid(-t)
    low, high = _log_mean(w, below), _log_mean(w, above)
    return low - high, _log_mean(w, a.log() + below + above + log_slopes) - low - high


def _weights(raw: Tensor, m: int, n: int) -> Tensor:
    """Return m rows of n positive weights with sum 1. No weight is 0, so the logarithm of a mean is finite."""
    return torch.softmax(raw.unflatten(-1, (m, n)), dim=-1).clamp(min=torch.finfo(raw.dtype).tiny)


def _log_mean(weights: Tensor, log_values: Tensor) -> Tensor:
    """Return the logarithms of the weighted means of exp(log_values), (..., m), for weights (..., m, n) and (..., n).
    The values are divided by the largest one, so no mean overflows or underflows. The quotient does not matter to the
    result, so it has no gradient; it is finite where all values are 0, far beyond all rows."""
    top = log_values.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(log_values.dtype).min)
    return (weights * (log_values - top).exp()[..., None, :]).sum(-1).log() + top


def _layers(units: int, depth: int, *, dense: bool) -> list[tuple[int, int]]:
    """Return the numbers of inputs and outputs of every layer."""
    sizes = [1, *[units if dense else 1] * (depth - 1), 1]
    return list(pairwise(sizes))


def _layer_size(units: int, n: int, m: int) -> int:
    return units * (2 + m + (n if n > 1 else 0))
