"""The hook of the networks: products with weights, norms and attention. ``cubicflow.accel`` replaces the hook with
faster kernels and concurrent gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.hooks import hook
from cubicflow.nets.precision import exact_linear
from cubicflow.nets.rng import current_generator

FEW_TOKENS = 128  # keys; up to this number attention on a CPU is written out


class Products:
    """The default hook: torch's products, norms, attention and gradients."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
        """Return x weight' + bias; if ``relu`` is true, the relu of this sum."""
        y = F.linear(x, weight, bias)
        return F.relu(y) if relu else y

    def exact(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x weight' + bias in the weight's precision: :func:`~cubicflow.nets.precision.exact_linear`."""
        return exact_linear(x, weight, bias)

    def add_norm(
        self, stream: Tensor, added: Tensor | None, norm: nn.LayerNorm, *, dtype: torch.dtype, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Return stream + dropout(added), and the layer norm of this sum in ``dtype``. ``added`` may be None.

        >>> stream, norm = torch.tensor([[1.0, 3.0]]), nn.LayerNorm(2)
        >>> Products().add_norm(stream, stream, norm, dtype=torch.bfloat16)[0]
        tensor([[2., 6.]])
        """
        if added is not None:
            stream = stream + apply_dropout(added, dropout)
        weight, bias = norm.weight.to(stream.dtype), norm.bias.to(stream.dtype)
        return stream, F.layer_norm(stream, norm.normalized_shape, weight, bias, norm.eps).to(dtype)

    def attention(self, queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool) -> Tensor:
        """Return the scaled dot-product attention of (N, heads, T, features). There may be fewer queries than keys.

        On a CPU with few tokens the formula is written out. It is as fast as torch's kernel, and differentiable to any
        order in forward and reverse mode.
        """
        if queries.is_cuda or keys.shape[2] > FEW_TOKENS:
            return F.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
        scores = queries @ keys.transpose(-1, -2) * (1 / math.sqrt(queries.shape[-1]))  # (N, heads, T, T)
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        return torch.softmax(scores, dim=-1) @ values

    def computed_weights(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return weights that were computed from parameters. A subclass may compute gradients on another stream. Its
        version of this method makes the backward pass wait for that stream."""
        return weights


def dropout_mask(x: Tensor, dropout: float) -> Tensor:
    """Draw a random mask of x's shape that is True for the elements that dropout keeps."""
    mask = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    return mask.bernoulli_(1 - dropout, generator=current_generator(x.device))


def apply_dropout(x: Tensor, dropout: float) -> Tensor:
    """Return x after dropout with this probability."""
    return x if dropout == 0 else x * dropout_mask(x, dropout) * (1 / (1 - dropout))


products = hook("nets", Products)


class Linear(nn.Linear):
    """A linear layer. If ``relu`` is true, a relu follows.

    >>> layer = Linear(2, 3, relu=True)
    >>> bool((layer(torch.randn(5, 2)) >= 0).all())
    True
    """

    def __init__(self, in_features: int, out_features: int, *, relu: bool = False) -> None:
        super().__init__(in_features, out_features)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        return products.linear(x, self.weight, self.bias, relu=self.relu)
