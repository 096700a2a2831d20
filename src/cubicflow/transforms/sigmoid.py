"""Between the real line and the unit interval."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cubicflow.transforms.compose import Inverse
from cubicflow.transforms.transform import Transform, check_floating, sum_features


class Sigmoid(Transform):
    """Real line to (0, 1), element by element.

    The inverse is the logit. With ``clip``, its input is first clamped to [clip, 1 - clip], as the paper does with
    1e-6, and the log-det is that of the clamped value: exact reversibility ends there. Without, the ends and what lies
    beyond them go where the number nearest to them inside goes, with a log-det of -inf: there is no density, and the
    layers behind see finite numbers.

    >>> Sigmoid()(torch.zeros(1, 2))
    (tensor([[0.5000, 0.5000]]), tensor([-2.7726]))
    """

    def __init__(self, clip: float | None = None) -> None:
        super().__init__()
        if clip is not None and not 0 < clip < 0.5:
            raise ValueError(f"clip must lie between 0 and 0.5, or be None, got {clip!r}")
        self.clip = clip

    def config(self) -> dict[str, Any]:
        return {"clip": self.clip}

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return torch.sigmoid(x), sum_features(F.logsigmoid(x) + F.logsigmoid(-x))

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_floating(self, z)
        if self.clip is not None:
            z = z.clamp(self.clip, 1 - self.clip)
        limits = torch.finfo(z.dtype)
        inside = z.clamp(limits.tiny * limits.eps, 1 - limits.eps / 2)  # the first and the last number between 0 and 1
        log_low, log_high = inside.log(), torch.log1p(-inside)
        log_slope = -log_low - log_high
        if self.clip is None:  # 1 - clip may be rounded to 1, which is not outside
            log_slope = torch.where((z <= 0) | (z >= 1), -torch.inf, log_slope)
        return log_low - log_high, sum_features(log_slope)


class Logit(Inverse):
    """(0, 1) to the real line: the inverse of :class:`Sigmoid`, with the same ``clip``.

    >>> Logit()(torch.full((1, 2), 0.5))
    (tensor([[0., 0.]]), tensor([2.7726]))
    """

    def __init__(self, clip: float | None = None) -> None:
        super().__init__(Sigmoid(clip))

    def config(self) -> dict[str, Any]:
        return self.transform.config()
