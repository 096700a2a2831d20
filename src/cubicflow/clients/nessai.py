"""A flow for nessai's nested sampling: ``FlowSampler(model, flow_config={"flow": NessaiFlow})``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from cubicflow.extras import need
from cubicflow.flows import Flow, tabular

need("nessai", "cubicflow.clients.nessai")

from nessai.flows.base import BaseFlow  # noqa: E402 - it may be absent
from nessai.utils import compute_radius  # noqa: E402

__all__ = ["NessaiFlow"]

VOLUME_FRACTION = 0.95
"""nessai's default: its latent contour contains this part of a standard normal."""

DEFAULTS = {"affine_first": True, "num_bins": 5, "scale_logits": False}
"""Settings for a thousand live points and a few hundred steps of training."""

DECAY = 0.9
"""The weight of the old average when :meth:`NessaiFlow.end_iteration` adds an epoch's parameters."""


class NessaiFlow(BaseFlow):  # type: ignore[misc]
    """A flow with cubic-spline couplings and linear layers (:func:`cubicflow.flows.tabular`) for nessai.

    The base is standard normal, because nessai's latent contours need it. The arguments are nessai's arguments for
    every flow.

    nessai draws new points inside the latent contour that contains 95 % of a standard normal. A flow that fits the live
    points well maps 5 % of them outside this contour. New points would then miss a part of the prior, and the evidence
    would be too high. So after every training the noise is scaled such that the contour goes through the farthest live
    point. Validation and sampling use a moving average of the parameters over the last epochs.

    Args:
        n_inputs: the number of features D; nessai sets it.
        n_neurons: the number of hidden units of each network; nessai's default is 2 D.
        n_blocks: the number of coupling layers.
        n_layers: the number of residual blocks of each network.
        context_features: the number of context features C, or None.
        cover: scale the noise after every training, see above.
        settings: further entries of ``flow_config``: settings of :class:`~cubicflow.flows.TabularConfig`, such as
            ``num_bins``. The defaults of ``affine_first``, ``num_bins`` and ``scale_logits`` are True, 5 and False.

    >>> flow = NessaiFlow(2, 16, 3, 2, num_bins=6)
    >>> x, log_prob = flow.sample_and_log_prob(5)
    >>> torch.allclose(flow.log_prob(x), log_prob, atol=1e-4)
    True
    """

    scale: Tensor

    def __init__(
        self,
        n_inputs: int,
        n_neurons: int,
        n_blocks: int,
        n_layers: int,
        *,
        context_features: int | None = None,
        distribution: Any = None,
        cover: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__()
        if distribution is not None:
            raise ValueError(
                "NessaiFlow has a standard normal base; leave 'distribution' out of flow_config, or use one of "
                "nessai's flows"
            )
        sizes = {"hidden_features": n_neurons, "num_layers": n_blocks, "num_blocks": n_layers}
        self._arguments = {"context_features": context_features or 0, **sizes, **DEFAULTS, **settings}
        self.flow = tabular(n_inputs, **self._arguments)
        self.averaged = copy.deepcopy(self.flow).requires_grad_(False)
        self.cover = cover
        self.register_buffer("scale", torch.ones(()))
        # In training, the batches of the current epoch and the validation rows; else None.
        self._live_points: list[tuple[Tensor, Tensor | None]] | None = None
        self._epoch_over = True

    @property
    def current(self) -> Flow:
        """The flow with the current parameters in training mode, and with the averaged parameters in evaluation
        mode."""
        return self.flow if self.training else self.averaged

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map data to noise: return (z, log_det)."""
        z, log_det = self.current.to_noise(x, context)
        return z / self.scale, log_det - z.shape[1] * self.scale.log()

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map noise to data: return (x, log_det)."""
        x, log_det = self.current.from_noise(z * self.scale, context)
        return x, log_det + z.shape[1] * self.scale.log()

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the log density of every row. From the first call in training mode to :meth:`finalise`, the rows are
        live points: first the batches of an epoch, then the validation rows."""
        if self.training and self._epoch_over:
            self._live_points, self._epoch_over = [], False
            self.scale.fill_(1)
        if self._live_points is not None:
            self._live_points.append((x.detach(), context))
        return self.forward_and_log_prob(x, context)[1]

    def sample(self, n: int, context: Tensor | None = None) -> Tensor:
        """Draw n rows. A context must have n rows, one for each sample."""
        return self.sample_and_log_prob(n, context)[0]

    def sample_and_log_prob(self, n: int, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Draw n rows with their log densities, in one pass. A context must have n rows, one for each sample."""
        z = self.sample_latent_distribution(n)
        x, log_det = self.inverse(z, context)
        return x, self.base_distribution_log_prob(z) - log_det

    def forward_and_log_prob(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the noise of every row, and the row's log density."""
        z, log_det = self.forward(x, context)
        return z, self.base_distribution_log_prob(z) + log_det

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

    @torch.no_grad()
    def end_iteration(self) -> None:
        """Add the parameters to their moving average. nessai calls this after every epoch, before the validation."""
        for average, new in zip(self.averaged.parameters(), self.flow.parameters(), strict=True):
            average.lerp_(new, 1 - DECAY)
        self._epoch_over = True

    @torch.no_grad()
    def finalise(self) -> None:
        """Scale the noise such that nessai's contour goes through the farthest live point. nessai calls this after
        every training."""
        batches, self._live_points, self._epoch_over = self._live_points, None, True
        if self.cover and batches:
            radii = torch.cat([self.averaged.to_noise(x, context)[0].norm(dim=1) for x, context in batches])
            farthest = radii.nan_to_num(0, posinf=0).amax()  # ignore points whose noise is not finite
            self.scale.copy_(farthest / compute_radius(self.flow.base.features, VOLUME_FRACTION))

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
        fresh = tabular(self.flow.base.features, **self._arguments).parameters()
        for old, average, new in zip(self.flow.parameters(), self.averaged.parameters(), fresh, strict=True):
            old.copy_(new)
            average.copy_(new)
        self.scale.fill_(1)
