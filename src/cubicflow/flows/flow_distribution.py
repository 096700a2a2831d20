"""A flow as a torch distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from cubicflow.distributions import Uniform

if TYPE_CHECKING:
    from cubicflow.flows.flow import Flow


class FlowDistribution(Distribution):
    """A flow, given its context, as a ``torch.distributions.Distribution``: batch_shape is context's, event_shape the
    shape of one datum. Reparameterised samples, exact log densities.

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(3, context_features=2, num_layers=2, hidden_features=16)
    >>> p = flow.distribution(torch.randn(4, 2))
    >>> p.batch_shape, p.event_shape, p.rsample((7,)).shape
    (torch.Size([4]), torch.Size([3]), torch.Size([7, 4, 3]))
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - torch's own class attribute
    has_rsample = True

    def __init__(self, flow: Flow, context: Tensor | None = None, *, batch_shape: torch.Size | None = None) -> None:
        if context is None and flow.context_features:
            raise ValueError(f"this flow is conditional: pass context of shape (..., {flow.context_features})")
        self.flow = flow
        self.context = context
        if batch_shape is None:
            batch_shape = torch.Size() if context is None else context.shape[:-1]
        super().__init__(batch_shape, torch.Size(flow.shape), validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        each = constraints.unit_interval if isinstance(self.flow.base, Uniform) else constraints.real
        return constraints.independent(each, len(self.event_shape))

    def expand(self, batch_shape: Any, _instance: Distribution | None = None) -> FlowDistribution:
        batch_shape = torch.Size(batch_shape)
        context = None if self.context is None else self.context.expand(*batch_shape, -1)
        return FlowDistribution(self.flow, context, batch_shape=batch_shape)

    def rsample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        shape = self._extended_shape(sample_shape)
        batch = shape[: len(shape) - len(self.event_shape)]
        z = self.flow.base.sample(batch.numel()).reshape(*batch, self.flow.base.features)
        return self.flow.from_noise(z, self.context)[0]

    def log_prob(self, value: Tensor) -> Tensor:
        batch = torch.broadcast_shapes(value.shape[: value.ndim - len(self.event_shape)], self.batch_shape)
        return self.flow.log_prob(value.expand(*batch, *self.event_shape), self.context)
