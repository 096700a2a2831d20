"""The parameters of a flow as a step sees them: tensors that it writes, and the gradients it writes them by."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Weights:
    """Trainable parameters, one tensor each.

    Attributes:
        params: the parameters.
        tensors: their memory, to be written in place. A subclass may lay it out in another way.
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = list(params)
        self.tensors = [param.detach() for param in params]

    def forget_gradients(self) -> None:
        """Before a backward pass: what it makes is then taken as it is, not added to something."""
        for param in self.params:
            param.grad = None

    def gradients(self) -> list[Tensor]:
        """A gradient for each of ``tensors``, to be written by whoever asked; 0 where there is none."""
        return [torch.zeros_like(param) if param.grad is None else param.grad for param in self.params]

    def written(self) -> None:
        """The tensors were written. Autograd knows: they are the parameters' own."""

    def release(self) -> None:
        """The last step was taken. The parameters have memory of their own anyway."""
