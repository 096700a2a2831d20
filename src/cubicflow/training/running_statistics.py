"""Buffers that a forward pass in training mode may change, such as the running means of batch norm layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningStatistics:
    """Buffers of a flow that a step may change. If there are none, the methods do nothing.

    cubicflow's own modules name the buffers that they change in ``updated``. What a module from elsewhere does is
    unknown, so all its buffers count.
    """

    def __init__(self, flow: nn.Module) -> None:
        self.owners = [
            module
            for module in flow.modules()
            if not type(module).__module__.startswith("cubicflow.") or getattr(module, "updated", None)
        ]

    def copy(self) -> list[dict[str, Tensor]]:
        """Return a copy of the buffers of each module."""
        return [{name: buffer.clone() for name, buffer in _buffers_of(owner).items()} for owner in self.owners]

    @torch.no_grad()
    def restore(self, kept: list[dict[str, Tensor]], where: Tensor) -> None:
        """Set the buffers to ``kept`` if the tensor ``where`` is true. Reads nothing back from the device."""
        for owner, before in zip(self.owners, kept, strict=True):
            for name, buffer in _buffers_of(owner).items():
                if name in before and before[name].shape == buffer.shape:
                    buffer.copy_(torch.where(where, before[name], buffer))


def _buffers_of(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's own buffers that can be written: an expanded tensor has one number for several elements."""
    found = module.named_buffers(recurse=False)
    return {name: buffer for name, buffer in found if buffer.layout == torch.strided and 0 not in buffer.stride()}
