"""The running means and variances of batch normalisation, which a forward pass in training mode changes."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningStatistics:
    """The buffers of a flow's batch norms; none where it has none, and then everything here costs nothing."""

    def __init__(self, flow: nn.Module) -> None:
        own = [dict(module.named_buffers(recurse=False)) for module in flow.modules()]
        self.buffers = [buffer for buffers in own if "running_mean" in buffers for buffer in buffers.values()]

    def copy(self) -> list[Tensor]:
        """What they are now."""
        return [buffer.clone() for buffer in self.buffers]

    def put_back(self, kept: list[Tensor], where: Tensor) -> None:
        """Undo what has changed since ``kept`` was copied, if ``where`` is true. Reads nothing back from the device."""
        for buffer, before in zip(self.buffers, kept, strict=True):
            buffer.copy_(torch.where(where, before, buffer))
