"""Glow's activation normalisation."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cubicflow.arguments import positive
from cubicflow.transforms.transform import Transform, check_features, per_pixel, scale_log_det


class ActNorm(Transform):
    """Activation normalisation: z = (x - shift) exp(-log_scale), feature by feature.

    The first batch that is mapped forward in training mode initialises shift and scale. Under torch.distributed the
    batches of all processes count. From then on shift and scale are trained.

    The buffer ``initialised`` records the initialisation, so a loaded layer does not initialise itself again. A Python
    bool mirrors the buffer, so that compiled graphs do not break on its value.

    Args:
        features: D, the number of columns or channels.

    >>> layer = ActNorm(3)
    >>> z, _ = layer(5 + 2 * torch.randn(1000, 3))
    >>> torch.allclose(z.mean(0), torch.zeros(3), atol=1e-4), torch.allclose(z.std(0), torch.ones(3), atol=1e-2)
    (True, True)
    """

    affine = True

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = positive("features", features)
        self.shift = nn.Parameter(torch.zeros(features))
        self.log_scale = nn.Parameter(torch.zeros(features))
        self.initialised = nn.Buffer(torch.tensor(False))
        self._is_initialised = False
        self.register_load_state_dict_post_hook(_mirror_flag)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_features(self, x, self.features)
        if not self._has_scale():
            if not self.training:
                raise self._unfitted()
            self.initialise(x)
        outputs = (x - per_pixel(self.shift, x)) * torch.exp(-per_pixel(self.log_scale, x))
        return outputs, -scale_log_det(x, self.log_scale)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_features(self, z, self.features)
        if not self._has_scale():
            raise self._unfitted()
        outputs = z * torch.exp(per_pixel(self.log_scale, z)) + per_pixel(self.shift, z)
        return outputs, scale_log_det(z, self.log_scale)

    @torch.no_grad()
    def initialise(self, x: Tensor, context: Tensor | None = None) -> None:
        """Set shift and scale from a batch, if that has not been done. A feature that is constant in the batch keeps
        scale 1."""
        if self._is_initialised:
            return
        columns = x.movedim(1, -1).reshape(-1, self.features).double()
        count = over_processes(torch.tensor(float(len(columns)), dtype=torch.float64, device=x.device))
        if count == 0:
            raise ValueError("ActNorm cannot initialise itself from an empty batch; pass at least one row")
        mean = over_processes(columns.sum(0)) / count
        std = (over_processes((columns - mean).square().sum(0)) / count).sqrt()
        # Constant features are found by their range: the mean of equal numbers is rounded, so their std is seldom 0.
        # The row of -inf allows for a process without rows.
        padding = columns.new_full((1, self.features), -torch.inf)
        highest = over_processes(torch.cat([columns, padding]).amax(0), largest=True)
        lowest = -over_processes(torch.cat([-columns, padding]).amax(0), largest=True)
        self.shift.copy_(mean)
        self.log_scale.copy_(torch.where(highest == lowest, 1, std).log())
        self.initialised.fill_(True)
        self._is_initialised = True

    def _has_scale(self) -> bool:
        # Read the buffer too: torch.func.functional_call may replace the buffer of a fresh layer.
        return self._is_initialised or bool(self.initialised)

    def _unfitted(self) -> RuntimeError:
        return RuntimeError(
            "this ActNorm has seen no data yet and has no scale, which only its forward map can choose: call "
            "flow.train() and then log_prob of a batch, or sample(1000) if the layer is inside an Inverse; or load a "
            "trained flow"
        )


def _mirror_flag(layer: ActNorm, _: Any) -> None:
    layer._is_initialised = bool(layer.initialised)


def over_processes(x: Tensor, *, largest: bool = False) -> Tensor:
    """Return the sum, or with ``largest`` the maximum, over all processes, element by element."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(x, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
    return x
