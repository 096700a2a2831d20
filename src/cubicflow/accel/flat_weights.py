"""All parameters of a flow in one vector, updated by one kernel.

Clipping, Adam and averaging are then single operations. On a list of small tensors a GPU would be idle for most of the
time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cubicflow.accel.private import find
from cubicflow.training.optimiser import BETA1, EPSILON, Adam, Weights

_fused_adamw_ = find("torch", "_fused_adamw_")
CAN_FUSE = _fused_adamw_ is not None
FIXED = {"beta1": BETA1, "eps": EPSILON, "amsgrad": False, "maximize": False}


def can_be_flat(params: Sequence[Tensor]) -> bool:
    """Return whether all params are plain parameters of one dtype on one device, so that they can be views of one
    vector."""
    kinds = {(type(param), param.dtype, param.device, param.layout) for param in params}
    return len(kinds) == 1 and next(iter(kinds))[0] is nn.Parameter and next(iter(kinds))[3] is torch.strided


class FlatWeights(Weights):
    """Weights as one vector. The parameters become views of the vector."""

    @torch.no_grad()
    def __init__(self, params: Sequence[Tensor]) -> None:
        super().__init__(params)
        self.tensors = [torch.cat([param.detach().flatten() for param in params])]
        parts = self.tensors[0].split([param.numel() for param in params])
        for param, part in zip(params, parts, strict=True):
            param.data = part.view_as(param)

    def gradients(self) -> list[Tensor]:
        return [torch.cat([gradient.flatten() for gradient in super().gradients()])]

    def bump_versions(self) -> None:
        """Tell autograd that the parameters changed. Autograd does not know that they are views of the vector, and
        would accept outdated values in a backward pass."""
        torch.autograd.graph.increment_version(self.params)

    def unflatten(self) -> None:
        """Give every parameter its own memory again."""
        for param in self.params:
            param.data = param.detach().clone()


class FusedAdam(Adam):
    """Adam with the fused kernel of ``torch.optim.AdamW(fused=True)``."""

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor], learning_rate: Tensor, skip: Tensor) -> None:
        (count,), means, squares = self.moments.values()
        skip = skip.to(count.dtype)
        count += 1
        settings = {"lr": learning_rate, "beta2": self.beta2, "weight_decay": self.weight_decay, "found_inf": skip}
        # The empty list stands for the maxima of AMSGrad, which is off.
        _fused_adamw_(self.tensors, list(gradients), means, squares, [], [count], **settings, **FIXED)
        count -= skip
