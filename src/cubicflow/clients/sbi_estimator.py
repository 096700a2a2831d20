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
        flow: a flow for the input, with the embedded condition as its context.
        condition_shape: the shape of one condition.
        condition_mean, condition_std: mean and standard deviation for standardising conditions, of the same shape.
        embedding_net: a network from the standardised condition to the context of the flow.

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(2, context_features=3, num_layers=2, hidden_features=16)
    >>> estimator = FlowEstimator(flow, (3,), torch.zeros(3), torch.ones(3), nn.Identity())
    >>> samples, log_prob = estimator.sample_and_log_prob((5,), torch.zeros(4, 3))
    >>> samples.shape, log_prob.shape
    (torch.Size([5, 4, 2]), torch.Size([5, 4]))
    """

    def __init__(
        self,
        flow: Flow,
        condition_shape: Sequence[int],
        condition_mean: Tensor,
        condition_std: Tensor,
        embedding_net: nn.Module,
    ) -> None:
        super().__init__(flow, input_shape=torch.Size(flow.shape), condition_shape=torch.Size(condition_shape))
        self.condition_mean, self.condition_std = nn.Buffer(condition_mean), nn.Buffer(condition_std)
        self._embedding_net = embedding_net

    @property
    def embedding_net(self) -> nn.Module:
        """The embedding network."""
        return self._embedding_net

    def log_prob(self, input: Tensor, condition: Tensor, **_: Any) -> Tensor:
        """Return the log density (sample_dim, batch_dim) of inputs (sample_dim, batch_dim, D) or (batch_dim, D)."""
        self._check("input", input, self.input_shape)
        if input.ndim == 2:
            input = input[None]
        found: Tensor = self.net.log_prob(input, self._context(condition))
        return found

    def loss(self, input: Tensor, condition: Tensor, **_: Any) -> Tensor:
        """Return the negative log density (batch_dim,)."""
        return -self.log_prob(input, condition)[0]

    def sample(self, sample_shape: Sequence[int], condition: Tensor, **_: Any) -> Tensor:
        """Draw samples (*sample_shape, batch_dim, D)."""
        samples: Tensor = self.net.sample(torch.Size(sample_shape).numel(), self._context(condition))
        return samples.reshape(*sample_shape, *samples.shape[1:])

    def sample_and_log_prob(self, sample_shape: Sequence[int], condition: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        """Draw samples (*sample_shape, batch_dim, D) with their log densities, in one pass."""
        count = torch.Size(sample_shape).numel()
        samples, log_prob = self.net.sample_and_log_prob(count, self._context(condition))
        return samples.reshape(*sample_shape, *samples.shape[1:]), log_prob.reshape(*sample_shape, -1)

    def standardise(self, condition: Tensor) -> Tensor:
        """Return the standardised condition, the input of the embedding net."""
        return (condition - self.condition_mean) / self.condition_std

    def _context(self, condition: Tensor) -> Tensor:
        """Return the embedded conditions, (..., C). Each condition is embedded once, not once per sample."""
        self._check("condition", condition, self.condition_shape)
        batch = condition.shape[: condition.ndim - len(self.condition_shape)]
        rows = self.standardise(condition).reshape(-1, *self.condition_shape)
        return flat(self._embedding_net(rows)).reshape(*batch, -1)

    def _check(self, name: str, given: Tensor, shape: torch.Size) -> None:
        if given.ndim <= len(shape) or given.shape[given.ndim - len(shape) :] != shape:
            wanted = ", ".join(["batch", *map(str, shape)])
            raise ValueError(
                f"{name} has shape {tuple(given.shape)}, and this estimator was built for {tuple(shape)}; give {name} "
                f"of shape ({wanted})"
            )


def flat(embedded: Tensor) -> Tensor:
    """Reshape the output of an embedding net to (N, C)."""
    return embedded.flatten(1) if embedded.ndim > 1 else embedded[:, None]
