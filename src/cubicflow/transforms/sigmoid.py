"""Maps between the real line and the unit interval."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cubicflow.arguments import number
from cubicflow.transforms.compose import Inverse
from cubicflow.transforms.transform import Transform, check_floating, sum_features


class Sigmoid(Transform):
    """The sigmoid, element by element, from the real line to (0, 1). Its inverse is the logit.

    Args:
        clip: clamp the input of the logit to [clip, 1 - clip]; the paper uses 1e-6. The log-det is that of the clamped
            value, so clamped values are not exactly reversible. None: inputs of the logit outside (0, 1) are moved to
            the nearest number inside, with a log-det of -inf. They have no density, and later layers see finite
            numbers.

    >>> Sigmoid()(torch.zeros(1, 2))
    (tensor([[0.5000, 0.5000]]), tensor([-2.7726]))
    """

    def __init__(self, clip: float | None = None) -> None:
        super().__init__()
        self.clip = None if clip is None else number("clip", clip, above=0, below=0.5)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return torch.sigmoid(x), sum_features(F.logsigmoid(x) + F.logsigmoid(-x))

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_floating(self, z)
        if self.clip is not None:
            z = z.clamp(self.clip, 1 - self.clip)
        limits = torch.finfo(z.dtype)
        inside = z.clamp(limits.tiny * limits.eps, 1 - limits.eps / 2)  # the smallest and largest number in (0, 1)
        log_low, log_high = inside.log(), torch.log1p(-inside)
        log_slope = -log_low - log_high
        if self.clip is None:  # with a clip, 1 - clip may round to 1, and 1 must then not count as outside
            log_slope = torch.where((z <= 0) | (z >= 1), -torch.inf, log_slope)
        return log_low - log_high, sum_features(log_slope)

    def map_box(self, ends: Tensor, *, inverse: bool = False) -> Tensor:
        return ends.clamp(0, 1).logit() if inverse else ends.sigmoid()


class Logit(Inverse):
    """The logit, element by element, from (0, 1) to the real line: the inverse of :class:`Sigmoid`, with the same
    ``clip``.

    >>> Logit()(torch.full((1, 2), 0.5))
    (tensor([[0., 0.]]), tensor([2.7726]))
    """

    def __init__(self, clip: float | None = None) -> None:
        super().__init__(Sigmoid(clip))

    def config(self) -> dict[str, Any]:
        return self.transform.config()
