"""The running means and variances of batch norm layers, which a forward pass in training mode changes."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningStatistics:
    """Buffers of a flow's batch norm layers. A flow without batch norm has no buffers, and the methods do nothing."""

    def __init__(self, flow: nn.Module) -> None:
        own = [dict(module.named_buffers(recurse=False)) for module in flow.modules()]
        self.buffers = [buffer for buffers in own if "running_mean" in buffers for buffer in buffers.values()]

    def copy(self) -> list[Tensor]:
        """Return a copy of the buffers."""
        return [buffer.clone() for buffer in self.buffers]

    def restore(self, kept: list[Tensor], where: Tensor) -> None:
        """Set the buffers to ``kept`` if the tensor ``where`` is true. Reads nothing back from the device."""
        for buffer, before in zip(self.buffers, kept, strict=True):
            buffer.copy_(torch.where(where, before, buffer))
