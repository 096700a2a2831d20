"""The element maps of neural autoregressive flows: small networks of sigmoids that increase in their input."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from cubicflow.nets.precision import exact_linear
from cubicflow.nets.tracing import constant_tensor
from cubicflow.splines.affine import check_params
from cubicflow.splines.functions import inner_dtype
from cubicflow.transforms.implicit import implicit_inverse

SOFTPLUS_IS_ONE = math.log(math.e - 1)  # softplus(SOFTPLUS_IS_ONE) = 1


def num_sigmoidal_params(units: int, depth: int, *, dense: bool) -> int:
    """Return the number of params of one map.

    >>> num_sigmoidal_params(8, 2, dense=False), num_sigmoidal_params(8, 2, dense=True)
    (48, 56)
    """
    return sum(_sizes(units, depth, dense=dense))


def num_shared_weights(units: int, depth: int, *, dense: bool) -> int:
    """Return the number of weights that all maps of an autoregressive layer share: none if they are not dense.

    >>> num_shared_weights(8, 2, dense=False), num_shared_weights(8, 2, dense=True)
    (0, 128)
    """
    return 2 * (depth - 1) * units**2 if dense and units > 1 else 0


def sigmoidal(
    x: Tensor,
    params: Tensor,
    shared: Tensor | None = None,
    *,
    num_bins: int,
    depth: int,
    dense: bool,
    inverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """A deep or a dense sigmoidal flow (Huang et al. 2018, section 3.1): ``depth`` layers of ``num_bins`` units.

    A layer maps h, (..., n), to logit(w sigmoid(a * (u h) + b)), (..., m). The scales a of the units are positive. The
    rows of w, (m, units), and u, (units, n), are positive and sum to 1. The layers of a deep flow have n = m = 1. Those
    of a dense flow pass all of their units' outputs on: n and m are the number of units, except for the first n and the
    last m, which are 1. As in the authors' program, logarithms of dense weights are a sum: a matrix that all maps share
    plus one param for each of its columns. So the number of params grows with the units, not with their square.

    **A map increases from the real line onto itself.** Each step does: a mean of increasing functions increases, and
    a * (u h) + b and the logit of a mean of sigmoids tend to the same infinity as h. Therefore a map has an inverse. It
    is found by a search, some 35 evaluations in float32 and 67 in float64; see
    :func:`~cubicflow.transforms.implicit.implicit_inverse`.

    All-zero params are the identity: a = 1, b = 0, and a mean of equal sigmoids is a sigmoid. There, equal units would
    have equal gradients and stay equal. Hence the units' params b have different fixed gains, from 1/4 to 4.

    Args:
        x: elements of any shape.
        params: (..., P), for each layer a before softplus, b, and the logarithms of w and u.
        shared: the shared parts of the logarithms of w and u, (:func:`num_shared_weights`,).

    Returns:
        (y, log_slope), each of shape broadcast(x, params[..., 0]).

    >>> x, params = torch.linspace(-3, 3, 5), torch.zeros(num_sigmoidal_params(4, 2, dense=True))
    >>> y, log_slope = sigmoidal(x, params, torch.randn(32), num_bins=4, depth=2, dense=True)
    >>> torch.allclose(y, x, atol=1e-6), torch.allclose(log_slope, torch.zeros(5), atol=1e-6)
    (True, True)
    """
    check_params("a sigmoidal map", x, params, num_sigmoidal_params(num_bins, depth, dense=dense))
    dtype = inner_dtype(x, params)
    wide = x.to(dtype).expand(torch.broadcast_shapes(x.shape, params.shape[:-1]))
    parts = params.to(dtype).split(_sizes(num_bins, depth, dense=dense), dim=-1)
    matrices: list[Tensor | None] = [None] * (2 * depth)  # u and w of every layer
    if size := num_shared_weights(num_bins, depth, dense=dense):
        if shared is None or shared.shape != (size,):
            raise ValueError(f"these sigmoidal maps share {size} weights; pass shared= of shape ({size},)")
        matrices[1:-1] = _shares(shared.to(dtype).view(-1, num_bins, num_bins)).unbind(0)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        h, log_slopes = x[..., None], torch.zeros_like(x)[..., None]  # of every h as a function of x
        for i in range(depth):
            h, log_slopes = _layer(h, log_slopes, parts[4 * i : 4 * i + 4], *matrices[2 * i : 2 * i + 2])
        return h[..., 0], log_slopes[..., 0]

    y, log_slope = implicit_inverse(function, wide) if inverse else function(wide)
    return y.to(x.dtype), log_slope


def _layer(
    h: Tensor, log_slopes: Tensor, params: Sequence[Tensor], shared_u: Tensor | None, shared_w: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the outputs of one layer, (..., m), and the logarithms of their slopes, given h and its log-slopes, (...,
    n). All sums are of positive terms, in logarithms, so nothing cancels or overflows in the tails."""
    raw_a, raw_b, raw_w, raw_u = params
    units = raw_a.shape[-1]
    if shared_u is not None:
        log_u = torch.log_softmax(raw_u, dim=-1)
        u = log_u.exp()
        total = _sums(u, shared_u)
        h, log_slopes = _sums(u * h, shared_u) / total, _log_sums(log_u + log_slopes, shared_u) - total.log()
    gains = constant_tensor([4 ** ((2 * j + 1) / units - 1) for j in range(units)], h.device, h.dtype)
    a = F.softplus(raw_a + SOFTPLUS_IS_ONE)
    t = a * h + gains * raw_b  # (..., units)
    below, above = F.logsigmoid(t), F.logsigmoid(-t)
    log_w = torch.log_softmax(raw_w, dim=-1)
    terms = torch.stack([below, above, a.log() + below + above + log_slopes])
    low, high, slope = _log_sums(terms + log_w, shared_w).unbind(0)
    log_total = 0.0 if shared_w is None else _sums(log_w.exp(), shared_w).log()
    return low - high, slope + log_total - low - high


def _shares(logarithms: Tensor) -> Tensor:
    """Return the exponentials, divided by the largest one of their row. None is 0, so the logarithm of a sum with such
    factors is finite."""
    top = logarithms.detach().amax(-1, keepdim=True)
    return (logarithms - top).exp().clamp(min=torch.finfo(top.dtype).tiny ** 0.5)


def _sums(values: Tensor, factors: Tensor | None) -> Tensor:
    """Return the sums over the last axis, weighted by the rows of the factors (m, n), or not: (..., n) -> (..., m)."""
    if factors is None:
        return values.sum(-1, keepdim=True)
    return exact_linear(values.reshape(-1, values.shape[-1]), factors).view(*values.shape[:-1], len(factors))


def _log_sums(log_values: Tensor, factors: Tensor | None) -> Tensor:
    """Return the logarithms of the sums of exp(log_values). The values are divided by the largest one, so no sum
    overflows or underflows. The quotient does not matter to the result, so it has no gradient; it is finite where all
    values are 0, far beyond all rows."""
    top = log_values.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(log_values.dtype).min)
    return _sums((log_values - top).exp(), factors).log() + top


def _sizes(units: int, depth: int, *, dense: bool) -> list[int]:
    """Return the numbers of params a, b, w and u of every layer. The u of a single input is 1 and needs none."""
    later = units if dense and units > 1 else 0
    return [units, units, units, 0] + (depth - 1) * [units, units, units, later]
