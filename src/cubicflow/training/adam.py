"""Adam with decoupled weight decay. No value is read back from the device, and a tensor can cancel an update."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BETA1, EPSILON = 0.9, 1e-8  # torch's defaults


class Adam:
    """Optimiser with the formulas of ``torch.optim.AdamW``.

    torch's own optimisers do not fit here: they read numbers back from the device, a tensor cannot cancel their
    update, and they import torch's compiler before the first step.

    Attributes:
        tensors: the tensors that are updated in place.
        moments: the optimiser's state, as lists of tensors under torch's names.
    """

    def __init__(self, tensors: Sequence[Tensor], beta2: float, weight_decay: float) -> None:
        self.tensors = list(tensors)
        self.beta2 = beta2
        self.weight_decay = weight_decay
        count = torch.zeros((), dtype=torch.float32, device=tensors[0].device)  # float32, as in torch
        self.moments = {
            "step": [count],
            "exp_avg": [torch.zeros_like(tensor) for tensor in tensors],
            "exp_avg_sq": [torch.zeros_like(tensor) for tensor in tensors],
        }

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor], learning_rate: Tensor, void: Tensor) -> None:
        """Take one step in place. If ``void`` is true, nothing changes."""
        (count,), means, squares = self.moments.values()
        steps, rate = count.double() + 1, learning_rate.double()
        mean_weight, square_weight = 1 - BETA1**steps, 1 - self.beta2**steps  # bias correction: the moments start at 0
        for tensor, gradient, mean, square in zip(self.tensors, gradients, means, squares, strict=True):
            new_mean = mean.lerp(gradient, 1 - BETA1)
            new_square = self.beta2 * square + (1 - self.beta2) * gradient.square()
            direction = (new_mean / mean_weight) / ((new_square / square_weight).sqrt() + EPSILON)
            moved = tensor * (1 - rate * self.weight_decay) - rate * direction
            for old, new in ((tensor, moved), (mean, new_mean), (square, new_square)):
                old.copy_(torch.where(void, old, new))
        count += (~void).to(count.dtype)
