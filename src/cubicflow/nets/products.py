"""Products with weights: the hook of the networks, in which gradients may run beside the rest of a backward pass."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.hooks import hook
from cubicflow.nets.draws import own_generator
from cubicflow.nets.exact_linear import exact_linear

FEW_TOKENS = 128


class Products:
    """The plain way: torch's own product, and torch's own gradients."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
        """x weight' + bias, or its relu."""
        y = F.linear(x, weight, bias)
        return F.relu(y) if relu else y

    def exact(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """x weight' + bias in the weight's precision: :func:`~cubicflow.nets.exact_linear.exact_linear`."""
        return exact_linear(x, weight, bias)

    def add_norm(
        self, stream: Tensor, added: Tensor | None, norm: nn.LayerNorm, *, dtype: torch.dtype, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """The stream with something added to it, after dropout, and its layer norm in another dtype.

        >>> stream, norm = torch.tensor([[1.0, 3.0]]), nn.LayerNorm(2)
        >>> Products().add_norm(stream, stream, norm, dtype=torch.bfloat16)[0]
        tensor([[2., 6.]])
        """
        if added is not None:
            stream = stream + dropped(added, dropout)
        weight, bias = norm.weight.to(stream.dtype), norm.bias.to(stream.dtype)
        return stream, F.layer_norm(stream, norm.normalized_shape, weight, bias, norm.eps).to(dtype)

    def attention(self, queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool) -> Tensor:
        """``scaled_dot_product_attention`` of (N, heads, T, features); queries may be fewer than keys.

        Written out for few tokens on a CPU: there it is as fast, and differentiable to any order and in any mode.
        """
        if queries.is_cuda or keys.shape[2] > FEW_TOKENS:
            return F.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
        scores = queries @ keys.transpose(-1, -2) * (1 / math.sqrt(queries.shape[-1]))  # (N, heads, T, T)
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        return torch.softmax(scores, dim=-1) @ values

    def made(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        """Weights that are functions of parameters, on their way from there to the products. A subclass whose products
        deliver gradients late sees to it here that those functions wait for them."""
        return weights


def kept(x: Tensor, dropout: float) -> Tensor:
    """Which elements dropout leaves, drawn at random: a mask of x's shape."""
    mask = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    return mask.bernoulli_(1 - dropout, generator=own_generator(x.device))


def dropped(x: Tensor, dropout: float) -> Tensor:
    """x after dropout."""
    return x if dropout == 0 else x * kept(x, dropout) * (1 / (1 - dropout))


products = hook("nets", Products)


class Linear(nn.Linear):
    """A linear layer, or with ``relu`` one that ends in a rectifier.

    >>> layer = Linear(2, 3, relu=True)
    >>> bool((layer(torch.randn(5, 2)) >= 0).all())
    True
    """

    def __init__(self, in_features: int, out_features: int, *, relu: bool = False) -> None:
        super().__init__(in_features, out_features)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        return products.linear(x, self.weight, self.bias, relu=self.relu)
