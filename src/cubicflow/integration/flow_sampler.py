"""A flow on the unit cube as a sampler, trained on weighted points.

Points pass the distribution functions of a product of densities, ``marginals``, before the flow sees them. After this
map the integrand is nearly uniform in every single column, so the flow need not learn narrow peaks of single columns.
"""

from __future__ import annotations

import copy
import math
from functools import partial

import torch
from torch import Tensor

from cubicflow.distributions import Uniform
from cubicflow.flows import Flow
from cubicflow.flows.box_recipe import binary_masks
from cubicflow.integration.product_mixture import ProductMixture, find_nodes, resample, uniform_mixture
from cubicflow.nets import FourierMLP
from cubicflow.nets.rng import seeded
from cubicflow.training.optimiser import Adam
from cubicflow.transforms import Compose, Coupling, ElementMap
from cubicflow.weights import effective_size

ROWS_AT_ONCE = 65_536
GRADIENT_NORM = 1.0
LOSSES = ("kl", "variance")


class FlowSampler:
    """A sampler with one density: a product of marginals followed by a flow on the unit cube."""

    def __init__(self, flow: Flow, marginals: ProductMixture) -> None:
        self.flow, self.marginals = flow, marginals

    def __len__(self) -> int:
        return 1

    @torch.no_grad()
    def log_densities(self, u: Tensor) -> Tensor:
        """Return the log density of every point: (N, D) -> (N, 1)."""
        v, log_marginals = self.marginals.to_noise(0, u)
        return (self.flow.log_prob(v.float(), batch_size=ROWS_AT_ONCE).double() + log_marginals)[:, None]

    @torch.no_grad()
    def draw(self, part: int, noise: Tensor) -> Tensor:
        """Map uniform noise to points: (n, D) -> (n, D)."""
        v, _ = self.flow.from_noise(noise.float(), batch_size=ROWS_AT_ONCE)
        return self.marginals.draw(part, v.double().clamp(0, 1))

    def snapshot(self) -> FlowSampler:
        """Return a copy that later training does not change."""
        return FlowSampler(copy.deepcopy(self.flow).requires_grad_(False), self.marginals)

    def train(
        self, u: Tensor, weights: Tensor, log_values: Tensor, steps: int, loss: str, generator: torch.Generator
    ) -> None:
        """Take gradient steps on points u with weights |f| / (N q); ``log_values`` is log |f|.

        ``"kl"`` minimises the cross entropy -sum_i w_i log q(u_i) / sum_i w_i. Its minimum is q proportional to |f|,
        and no weight is squared. ``"variance"`` does the same in the first half of the steps. In the second half it
        minimises the second moment of f / q.
        """
        batch_size = min(512, max(128, len(u) // 16))
        rows = resample(weights, batch_size * steps, generator)
        rows = rows[torch.randperm(len(rows), generator=generator)].view(steps, batch_size)
        with torch.no_grad():
            v, log_marginals = self.marginals.to_noise(0, u)
        v, targets = v.float(), (log_values - log_marginals).float()
        # The constant cancels in the gradient. Targets are -inf where f is 0; points with f = 0 are never resampled.
        targets = targets - targets.max()
        parameters = [p for p in self.flow.parameters() if p.requires_grad]
        optimiser = Adam(parameters, beta2=0.99, weight_decay=0.0)
        for step, batch in enumerate(rows):
            log_q = self.flow.log_prob(v[batch])
            if loss == "variance" and 2 * step >= steps:
                objective = (targets[batch] - log_q).logsumexp(0)
            else:
                objective = -log_q.mean()
            gradients = torch.autograd.grad(objective, parameters)
            norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()
            scale = (GRADIENT_NORM / norm).clamp(max=1.0)
            warm = min(1.0, (step + 1) / 50)
            rate = 3e-3 * warm * (1 + math.cos(math.pi * step / steps)) / 2
            optimiser.update([g * scale for g in gradients], torch.tensor(rate), ~norm.isfinite())


def new_flow_sampler(u: Tensor, weights: Tensor, circles: list[bool], seed: int) -> FlowSampler:
    """Return an untrained flow, the identity, with marginals fitted to weighted points. Settings depend on D."""
    features = len(circles)
    fitted = uniform_mixture(features, circles).on_nodes(find_nodes(u, weights, 32))
    fitted = fitted.improved(u, weights * (effective_size(weights) / float(weights.sum())), 5)
    # Add a uniform part, so that the marginals map no part of the cube to almost zero volume.
    marginals = ProductMixture(fitted.nodes, 0.9 * fitted.heights + 0.1, torch.ones(1), circles)
    with seeded(seed):
        network = partial(FourierMLP, octaves=5 if features == 2 else 2, hidden_features=48, num_blocks=1)
        domains = ["circle" if circle else "unit" for circle in circles]
        element = ElementMap("cubic", num_bins=16 if features <= 4 else 12, domain=domains)
        masks = binary_masks(features) * (2 if features == 2 else 1)
        layers = [Coupling(mask, network, element) for mask in masks]
        return FlowSampler(Flow(Uniform(features), Compose(layers)), marginals)
