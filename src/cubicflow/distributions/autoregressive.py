"""The autoregressive base: each feature is a mixture of normals, given all features before it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cubicflow.arguments import check_context_given, positive
from cubicflow.distributions.base import LOG_SQRT_2PI, Base
from cubicflow.nets import CausalGRU
from cubicflow.nets.masked_residual_mlp import start_decoding
from cubicflow.nets.network_factory import NetworkFactory, make_network


class AutoregressiveMixture(Base):
    """The conditionals of transformation autoregressive networks (Oliva et al. 2018, section 2.1): p(z) is the product
    of p(z_i | z_0 .. z_{i-1}), each a mixture of normals whose weights, means and scales a causal network computes.

    With :class:`~cubicflow.nets.CausalGRU` it is the paper's RAM, with :class:`~cubicflow.nets.CausalLinear` its LAM,
    and with :class:`~cubicflow.nets.MaskedResidualMLP` a MADE with mixtures. ``log_prob`` takes one pass of the
    network. Sampling goes feature by feature. Samples are differentiable with respect to means and scales, but not with
    respect to weights, because a draw picks one component. At the start, where the network's outputs are 0, every
    feature has equal weights and unit scales, and means that are evenly spaced from -1 to 1.

    Args:
        features: D.
        components: K, the normals of a mixture.
        network: a module from z (and context) to 3 K D numbers, or a factory called with (in_features, out_features,
            context_features=...). Outputs for feature i may depend on features before i alone.
        context_features: C.

    >>> base = AutoregressiveMixture(3, components=4)
    >>> base.sample(5).shape, base.log_prob(torch.zeros(5, 3)).shape
    (torch.Size([5, 3]), torch.Size([5]))
    """

    tempered = False

    def __init__(
        self,
        features: int,
        components: int = 10,
        *,
        network: nn.Module | NetworkFactory = CausalGRU,
        context_features: int = 0,
    ) -> None:
        super().__init__(features)
        self.components, self.context_features = positive("components", components), context_features
        self.network = make_network(network, features, 3 * components * features, context_features, causal=True)

    def log_prob(self, z: Tensor, temperature: float = 1.0, context: Tensor | None = None) -> Tensor:
        self._check(z, temperature)
        check_context_given(self, context, self.context_features)
        outputs = self.network(z) if context is None else self.network(z, context)
        log_weights, means, log_scales = self._mixtures(outputs.unflatten(1, (self.features, -1)))  # (N, D, K)
        u = (z[..., None] - means) * torch.exp(-log_scales)
        return torch.logsumexp(log_weights - u.square() / 2 - log_scales - LOG_SQRT_2PI, dim=-1).sum(-1)

    def sample(
        self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None, context: Tensor | None = None
    ) -> Tensor:
        self._check_temperature(temperature)
        check_context_given(self, context, self.context_features)
        normal, uniform = self._normal(n, generator), self._uniform(n, generator)
        next_outputs = start_decoding(self.network, normal, context)
        columns: list[Tensor] = []
        for i in range(self.features):
            outputs = next_outputs(columns[-1] if columns else None)
            log_weights, means, log_scales = self._mixtures(outputs)  # (N, K)
            passed = log_weights.exp().cumsum(1)[:, :-1] <= uniform[:, i : i + 1]  # all but the last component
            pick = passed.sum(1, keepdim=True)
            columns.append(means.gather(1, pick)[:, 0] + log_scales.exp().gather(1, pick)[:, 0] * normal[:, i])
        return torch.stack(columns, dim=1)

    def _mixtures(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-weights, means and log-scales, (..., K) each, of outputs (..., 3 K)."""
        logits, means, log_scales = outputs.unflatten(-1, (3, self.components)).unbind(-2)
        places = (2 * torch.arange(self.components, device=means.device) + 1) / self.components - 1
        # exp of a large output could underflow to a scale of 0, at which a density is infinite
        bound = math.log(torch.finfo(means.dtype).max) / 4
        return logits.log_softmax(-1), means + places.to(means), log_scales.clamp(-bound, bound)
