"""Mixtures of flows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, nn

from cubicflow.flows.batch_shapes import as_generator, expanded, sample_shape
from cubicflow.flows.flow import Flow

if TYPE_CHECKING:
    from cubicflow.flows.flow_distribution import FlowDistribution


class Mixture(nn.Module):
    """A weighted mixture of flows with an exact density: p(x) = sum of w_i p_i(x).

    Args:
        flows: flows on the same data and context.
        weights: one positive number for each flow, normalised to sum 1. The default is equal weights.
        trainable_weights: train the weights too.

    >>> import cubicflow as cf
    >>> flows = [cf.flows.tabular(2, num_layers=1, hidden_features=8, seed=i) for i in range(2)]
    >>> mixture = Mixture(flows)
    >>> mixture.log_prob(mixture.sample(5, seed=0)).shape
    torch.Size([5])
    """

    def __init__(
        self, flows: Sequence[Flow], weights: Sequence[float] | None = None, *, trainable_weights: bool = False
    ) -> None:
        super().__init__()
        if not flows:
            raise ValueError("a Mixture needs at least one flow")
        first = flows[0]
        for i, flow in enumerate(flows):
            if (flow.shape, flow.context_shape) != (first.shape, first.context_shape):
                raise ValueError(
                    f"all flows of a Mixture must be on the same data: flow {i} has shape {flow.shape} and contexts of "
                    f"shape {flow.context_shape}, flow 0 has {first.shape} and {first.context_shape}"
                )
        self.shape, self.context_shape, self.context_features = first.shape, first.context_shape, first.context_features
        weights = [1.0] * len(flows) if weights is None else [float(w) for w in weights]
        if len(weights) != len(flows) or not all(0 < w < float("inf") for w in weights):
            raise ValueError(f"weights must be {len(flows)} positive numbers, one for each flow, got {weights}")
        self.members = nn.ModuleList(flows)
        # Normalise in float64, where every positive weight has a finite logarithm. Then convert to the flows' dtype.
        log_weights = torch.tensor(weights, dtype=torch.float64).log().log_softmax(0)
        log_weights = log_weights.to(first.base.anchor)
        self.trainable_weights = trainable_weights
        self.log_weights = nn.Parameter(log_weights) if trainable_weights else nn.Buffer(log_weights)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return :meth:`log_prob`, so that wrappers such as ``DistributedDataParallel`` see every call."""
        return self.log_prob(x, context)

    @property
    def exact(self) -> bool:
        """Whether the log densities of all flows are exact."""
        return all(flow.exact for flow in self.flows)

    @property
    def flows(self) -> list[Flow]:
        """The flows of the mixture."""
        return list(self.members)  # type: ignore[arg-type] # the type checker sees Modules

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments except the weights, which are saved as a tensor."""
        return {"flows": self.flows, "trainable_weights": True} if self.trainable_weights else {"flows": self.flows}

    def log_shares(self) -> Tensor:
        """Return the logarithms of the weights, (number of flows,). The weights sum to 1."""
        return self.log_weights.log_softmax(0) if self.trainable_weights else self.log_weights

    def log_prob(
        self, x: Tensor, context: Tensor | None = None, *, batch_size: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        """Return log p(x | context) in nats, (...,), as :meth:`Flow.log_prob` does."""
        parts = [flow.log_prob(x, context, batch_size=batch_size, temperature=temperature) for flow in self.flows]
        return torch.logsumexp(torch.stack(parts, dim=-1) + self.log_shares(), dim=-1)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        context: Tensor | None = None,
        temperature: float = 1.0,
        *,
        batch_size: int | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Draw n samples, as in :meth:`Flow.sample`. Every row first draws one of the flows."""
        generator = as_generator(generator, seed, self.log_weights.device)
        batch = sample_shape(n, context, len(self.context_shape))
        rows = batch.numel()
        if rows == 0:
            return self.flows[0].sample(n, context, temperature)
        picks = torch.multinomial(self.log_shares().exp(), rows, replacement=True, generator=generator)
        contexts = None if context is None else expanded(context, batch, self.context_shape)
        order = [(picks == i).nonzero().squeeze(1) for i in range(len(self.flows))]
        drawn = []
        for flow, chosen in zip(self.flows, order, strict=True):
            count, given = (len(chosen), None) if contexts is None else (1, contexts[chosen])
            x = flow.sample(count, given, temperature, batch_size=batch_size, generator=generator)
            drawn.append(x.reshape(-1, *self.shape))
        return torch.cat(drawn)[torch.cat(order).argsort()].reshape(*batch, *self.shape)

    def sample_and_log_prob(
        self,
        n: int,
        context: Tensor | None = None,
        temperature: float = 1.0,
        *,
        batch_size: int | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Draw samples, and return them with their log densities under the whole mixture, at this temperature. The log
        densities have gradients; the samples have none."""
        x = self.sample(n, context, temperature, batch_size=batch_size, generator=generator, seed=seed)
        return x, self.log_prob(x, context, batch_size=batch_size, temperature=temperature)

    def distribution(self, context: Tensor | None = None) -> FlowDistribution:
        """Return this mixture as :meth:`Flow.distribution` does. Its samples have no gradients."""
        from cubicflow.flows.flow_distribution import distribution_class

        return distribution_class()(self, context)

    def to_noise(self, x: Tensor, context: Tensor | None = None) -> NoReturn:
        """Raise a NotImplementedError: a mixture has no single map to noise."""
        raise NotImplementedError("a Mixture has no single map to noise; use one of mixture.flows")

    def rsample(self, n: int, context: Tensor | None = None) -> NoReturn:
        """Raise a NotImplementedError: a draw picks one flow, and that choice has no derivative."""
        raise NotImplementedError("a Mixture cannot be sampled differentiably; sample one of mixture.flows instead")

    def save(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors into ``folder``. :func:`cubicflow.load` reads them."""
        from cubicflow.flows.serialization import save_flow

        save_flow(self, folder)
