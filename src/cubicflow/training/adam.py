"""Adam with decoupled weight decay, as a step needs it: nothing is read back, and an update can be void."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BETA1, EPSILON = 0.9, 1e-8  # as in torch


class Adam:
    """The moments of tensors, and their updates: the formulas of ``torch.optim.AdamW``.

    By hand because torch's optimisers read numbers back, cannot leave out an update where a tensor says so, and import
    torch's compiler before a first step.

    Attributes:
        tensors: what is updated, in place.
        moments: the state by the names torch has for it, a list of tensors each.
    """

    def __init__(self, tensors: Sequence[Tensor], beta2: float, weight_decay: float) -> None:
        self.tensors = list(tensors)
        self.beta2 = beta2
        self.weight_decay = weight_decay
        count = torch.zeros((), dtype=torch.float32, device=tensors[0].device)  # as in torch, whatever the default
        self.moments = {
            "step": [count],
            "exp_avg": [torch.zeros_like(tensor) for tensor in tensors],
            "exp_avg_sq": [torch.zeros_like(tensor) for tensor in tensors],
        }

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor], learning_rate: Tensor, void: Tensor) -> None:
        """Take one step, in place; where ``void`` is true, nothing changes."""
        (count,), means, squares = self.moments.values()
        steps, rate = count.double() + 1, learning_rate.double()
        mean_weight, square_weight = 1 - BETA1**steps, 1 - self.beta2**steps  # the moments began at 0
        for tensor, gradient, mean, square in zip(self.tensors, gradients, means, squares, strict=True):
            new_mean = mean.lerp(gradient, 1 - BETA1)
            new_square = self.beta2 * square + (1 - self.beta2) * gradient.square()
            direction = (new_mean / mean_weight) / ((new_square / square_weight).sqrt() + EPSILON)
            moved = tensor * (1 - rate * self.weight_decay) - rate * direction
            for old, new in ((tensor, moved), (mean, new_mean), (square, new_square)):
                old.copy_(torch.where(void, old, new))
        count += (~void).to(count.dtype)
