"""Adam with decoupled weight decay, on one vector, in one operation."""

from __future__ import annotations

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
EPSILON = 1e-8  # all three as in torch


class Adam:
    """The moments of a vector, and its updates. The operation is that of ``torch.optim.AdamW(fused=True)``, whose class
    imports torch's compiler before a first step.

    Attributes:
        moments: its state, by the names torch has for it.
    """

    def __init__(self, vector: Tensor, weight_decay: float) -> None:
        self.vector = vector
        self.weight_decay = weight_decay
        self.moments = {
            "step": torch.zeros((), dtype=torch.float32, device=vector.device),  # as in torch, whatever the default
            "exp_avg": torch.zeros_like(vector),
            "exp_avg_sq": torch.zeros_like(vector),
        }

    @torch.no_grad()
    def update(self, gradient: Tensor, learning_rate: Tensor, void: Tensor) -> None:
        """Take one step, in place; where ``void`` is true, nothing changes."""
        step, mean, square = self.moments.values()
        void = void.to(step.dtype)
        step += 1
        torch._fused_adamw_(
            [self.vector],
            [gradient],
            [mean],
            [square],
            [],
            [step],
            lr=learning_rate,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=self.weight_decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
            found_inf=void,
        )
        step -= void
