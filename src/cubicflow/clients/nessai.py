"""A flow for nessai's nested sampling: ``FlowSampler(model, flow_config={"flow": NessaiFlow})``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from cubicflow.clients.installed import demand
from cubicflow.flows import tabular

demand("nessai", "0.13")

from nessai.flows.base import BaseFlow  # noqa: E402 - it may be absent

__all__ = ["NessaiFlow"]


class NessaiFlow(BaseFlow):  # type: ignore[misc]
    """A flow with cubic-spline couplings and linear layers (:func:`cubicflow.flows.tabular`) for nessai.

    The base is standard normal, because nessai's latent contours need it. The arguments are nessai's arguments for
    every flow.

    Args:
        n_inputs: the number of features D; nessai sets it.
        n_neurons: the number of hidden units of each network; nessai's default is 2 D.
        n_blocks: the number of coupling layers.
        n_layers: the number of residual blocks of each network.
        context_features: the number of context features C, or None.
        settings: further entries of ``flow_config``: settings of :class:`~cubicflow.flows.TabularConfig`, such as
            ``num_bins``.

    >>> flow = NessaiFlow(2, 16, 3, 2, num_bins=6)
    >>> x, log_prob = flow.sample_and_log_prob(5)
    >>> torch.allclose(flow.log_prob(x), log_prob, atol=1e-4)
    True
    """

    def __init__(
        self,
        n_inputs: int,
        n_neurons: int,
        n_blocks: int,
        n_layers: int,
        *,
        context_features: int | None = None,
        distribution: Any = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        if distribution is not None:
            raise ValueError(
                "NessaiFlow has a standard normal base; leave 'distribution' out of flow_config, or use one of "
                "nessai's flows"
            )
        sizes = {"hidden_features": n_neurons, "num_layers": n_blocks, "num_blocks": n_layers}
        self._arguments = {"context_features": context_features or 0, **sizes, **settings}
        self.flow = tabular(n_inputs, **self._arguments)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map data to noise: return (z, log_det)."""
        return self.flow.to_noise(x, context)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map noise to data: return (x, log_det)."""
        return self.flow.from_noise(z, context)

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the log density of every row."""
        return self.flow.log_prob(x, context)

    def sample(self, n: int, context: Tensor | None = None) -> Tensor:
        """Draw n rows. A context must have n rows; each sample uses one."""
        return self.sample_and_log_prob(n, context)[0]

    def sample_and_log_prob(self, n: int, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Draw n rows with their log densities, in one pass. A context must have n rows; each sample uses one."""
        z = self.flow.base.sample(n)
        x, log_det = self.flow.from_noise(z, context)
        return x, self.flow.base.log_prob(z) - log_det

    def forward_and_log_prob(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the noise of every row, and the row's log density."""
        z, log_det = self.flow.to_noise(x, context)
        return z, self.flow.base.log_prob(z) + log_det

    def sample_latent_distribution(self, n: int, context: Tensor | None = None) -> Tensor:
        """Draw n rows of noise. The noise does not depend on the context."""
        del context
        return self.flow.base.sample(n)

    def base_distribution_log_prob(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the log density of noise. The density does not depend on the context."""
        del context
        return self.flow.base.log_prob(z)

    def freeze_transform(self) -> None:
        """Exclude all parameters of the transform from training."""
        self.flow.transform.requires_grad_(False)

    def unfreeze_transform(self) -> None:
        """Include all parameters of the transform in training."""
        self.flow.transform.requires_grad_(True)

    def apply(self, fn: Callable[[nn.Module], None]) -> Self:
        """Call ``fn`` with this flow only, not with its submodules.

        nessai resets weights through ``apply``, module by module. This flow starts at the identity, so
        :meth:`reset_parameters` must reset it as a whole.
        """
        fn(self)
        return self

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Replace all parameters by newly initialised ones."""
        fresh = tabular(self.flow.base.features, **self._arguments)
        for old, new in zip(self.flow.parameters(), fresh.parameters(), strict=True):
            old.copy_(new)
