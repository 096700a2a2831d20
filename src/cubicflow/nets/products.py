"""Products with weights: the hook of the networks, in which gradients may run beside the rest of a backward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.hooks import hook
from cubicflow.nets.exact_linear import exact_linear


class Products:
    """The plain way: torch's own product, and torch's own gradients."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
        """x weight' + bias, or its relu."""
        y = F.linear(x, weight, bias)
        return F.relu(y) if relu else y

    def exact(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """x weight' + bias in the weight's precision: :func:`~cubicflow.nets.exact_linear.exact_linear`."""
        return exact_linear(x, weight, bias)

    def made(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        """Weights that are functions of parameters, on their way from there to the products. A subclass whose products
        deliver gradients late sees to it here that those functions wait for them."""
        return weights


products = hook("nets", Products)


class Linear(nn.Linear):
    """A linear layer, or with ``relu`` one that ends in a rectifier.

    >>> import torch
    >>> layer = Linear(2, 3, relu=True)
    >>> bool((layer(torch.randn(5, 2)) >= 0).all())
    True
    """

    def __init__(self, in_features: int, out_features: int, *, relu: bool = False) -> None:
        super().__init__(in_features, out_features)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        return products.linear(x, self.weight, self.bias, relu=self.relu)
