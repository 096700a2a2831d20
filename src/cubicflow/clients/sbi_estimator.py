"""A flow with the interface of sbi's conditional density estimators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sbi.neural_nets.estimators import ConditionalDensityEstimator
from torch import Tensor, nn

from cubicflow.flows import Flow


class FlowEstimator(ConditionalDensityEstimator):  # type: ignore[misc]
    """A flow for p(input | condition) that sbi can train and sample.

    Args:
        flow: a flow whose context is the condition. Its embedding net is trained with it.

    >>> import cubicflow as cf
    >>> estimator = FlowEstimator(cf.flows.tabular(2, context_features=3, num_layers=2, hidden_features=16))
    >>> samples, log_prob = estimator.sample_and_log_prob((5,), torch.zeros(4, 3))
    >>> samples.shape, log_prob.shape
    (torch.Size([5, 4, 2]), torch.Size([5, 4]))
    """

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow, input_shape=torch.Size(flow.shape), condition_shape=torch.Size(flow.context_shape))

    @property
    def embedding_net(self) -> nn.Module:
        """The network from conditions to the contexts of the layers."""
        return self.net.embedding_net or nn.Identity()

    def log_prob(self, input: Tensor, condition: Tensor, **_: Any) -> Tensor:
        """Return the log density (sample_dim, batch_dim) of inputs (sample_dim, batch_dim, D) or (batch_dim, D)."""
        self._check("input", input, self.input_shape)
        self._check("condition", condition, self.condition_shape)
        found: Tensor = self.net.log_prob(input[None] if input.ndim == 2 else input, condition)
        return found

    def loss(self, input: Tensor, condition: Tensor, **_: Any) -> Tensor:
        """Return the negative log density (batch_dim,)."""
        return -self.log_prob(input, condition)[0]

    def sample(self, sample_shape: Sequence[int], condition: Tensor, **_: Any) -> Tensor:
        """Draw samples (*sample_shape, batch_dim, D)."""
        self._check("condition", condition, self.condition_shape)
        samples: Tensor = self.net.sample(torch.Size(sample_shape).numel(), condition)
        return samples.reshape(*sample_shape, *samples.shape[1:])

    def sample_and_log_prob(self, sample_shape: Sequence[int], condition: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        """Draw samples (*sample_shape, batch_dim, D) with their log densities, in one pass."""
        self._check("condition", condition, self.condition_shape)
        samples, log_prob = self.net.sample_and_log_prob(torch.Size(sample_shape).numel(), condition)
        return samples.reshape(*sample_shape, *samples.shape[1:]), log_prob.reshape(*sample_shape, -1)

    def _check(self, name: str, given: Tensor, shape: torch.Size) -> None:
        if given.ndim <= len(shape) or given.shape[given.ndim - len(shape) :] != shape:
            wanted = ", ".join(["batch", *map(str, shape)])
            raise ValueError(
                f"{name} has shape {tuple(given.shape)}, and this estimator was built for {tuple(shape)}; give {name} "
                f"of shape ({wanted})"
            )
