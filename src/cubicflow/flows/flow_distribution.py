"""A flow as a torch distribution."""

from __future__ import annotations

import sys
import types
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from cubicflow.flows.batch_shapes import expanded, no_context
from cubicflow.flows.flow import Flow
from cubicflow.flows.support import PositiveDensity, box_of

if TYPE_CHECKING:
    from cubicflow.flows.mixture import Mixture


class FlowDistribution(Distribution):
    """A flow or a mixture of flows, given its context, as a ``torch.distributions.Distribution`` with exact log
    densities. Samples of a flow are reparameterised, and samples of a mixture have no gradients. ``batch_shape`` is the
    batch shape of the context, and ``event_shape`` is the shape of one datum.

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(3, context_features=2, num_layers=2, hidden_features=16)
    >>> p = flow.distribution(torch.randn(4, 2))
    >>> p.batch_shape, p.event_shape, p.rsample((7,)).shape
    (torch.Size([4]), torch.Size([3]), torch.Size([7, 4, 3]))
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - torch's own class attribute

    def __init__(
        self, flow: Flow | Mixture, context: Tensor | None = None, *, batch_shape: torch.Size | None = None
    ) -> None:
        if context is None and flow.context_shape:
            raise no_context(flow.context_shape)
        self.flow = flow
        self.has_rsample = isinstance(flow, Flow)
        self.context = context
        if batch_shape is None:
            batch_shape = torch.Size() if context is None else context.shape[: context.ndim - len(flow.context_shape)]
        super().__init__(batch_shape, torch.Size(flow.shape), validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return box_of(self.flow) or PositiveDensity(self)

    def expand(self, batch_shape: Any, _instance: Distribution | None = None) -> FlowDistribution:
        batch_shape = torch.Size(batch_shape)
        if not _expands(self.batch_shape, batch_shape):
            raise ValueError(f"batch shape {tuple(self.batch_shape)} does not expand to {tuple(batch_shape)}")
        context = None if self.context is None else self.context.expand(*batch_shape, *self.flow.context_shape)
        return type(self)(self.flow, context, batch_shape=batch_shape)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        shape, _, count, rows = self._extended(sample_shape)
        return self.flow.sample(count, rows).reshape(shape)

    def rsample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        return self.rsample_and_log_prob(sample_shape)[0]

    def rsample_and_log_prob(self, sample_shape: Any = torch.Size()) -> tuple[Tensor, Tensor]:  # noqa: B008
        """Draw samples as in :meth:`rsample`, and return them with their log densities, in one pass."""
        if not isinstance(self.flow, Flow):
            self.flow.rsample(0)  # raises, with the reason
        shape, batch, count, rows = self._extended(sample_shape)
        x, log_prob = self.flow.sample_and_log_prob(count, rows)
        return x.reshape(shape), log_prob.reshape(batch)

    def _extended(self, sample_shape: Any) -> tuple[torch.Size, torch.Size, int, Tensor | None]:
        """Return the shape of samples, their batch shape, and the arguments of :meth:`Flow.sample` that draw them: a
        number of samples, or 1 and a row of context for each sample."""
        shape = self._extended_shape(sample_shape)
        batch = shape[: len(shape) - len(self.event_shape)]
        if self.context is None:
            return shape, batch, batch.numel(), None
        return shape, batch, 1, expanded(self.context, batch, self.flow.context_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        log_prob = self.flow.log_prob(value, self.context)
        try:
            return log_prob.expand(torch.broadcast_shapes(log_prob.shape, self.batch_shape))
        except RuntimeError:
            raise ValueError(
                f"value of shape {tuple(value.shape)} does not broadcast with batch shape {tuple(self.batch_shape)}"
            ) from None


def _expands(old: torch.Size, new: torch.Size) -> bool:
    """Return whether a tensor of shape ``old`` expands to ``new``."""
    try:
        return bool(torch.broadcast_shapes(old, new) == new)
    except RuntimeError:
        return False


def distribution_class() -> type[FlowDistribution]:
    """Return the class :class:`FlowDistribution`. If Pyro has been imported, the class has Pyro's mixin, so that it
    works in ``pyro.sample``, as a prior or a guide, and under plates."""
    pyro = sys.modules.get("pyro.distributions.torch_distribution")
    return FlowDistribution if pyro is None else _with_mixin(pyro.TorchDistributionMixin)


@lru_cache(maxsize=1)
def _with_mixin(mixin: type) -> type[FlowDistribution]:
    return types.new_class("FlowDistribution", (FlowDistribution, mixin))
