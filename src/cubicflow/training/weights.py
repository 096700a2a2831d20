"""The trainable parameters of a flow, and their gradients, in the memory layout that steps use."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Weights:
    """Trainable parameters.

    Attributes:
        params: the parameters.
        tensors: the parameters' memory, which steps write in place: here one tensor for each parameter. A subclass may
            use another layout.
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = list(params)
        self.tensors = [param.detach() for param in params]

    def forget_gradients(self) -> None:
        """Remove old gradients, so that the next backward pass does not add to them."""
        for param in self.params:
            param.grad = None

    def gradients(self) -> list[Tensor]:
        """Return a gradient for each of ``tensors``: zeros if the parameter has none. The caller may overwrite them."""
        return [torch.zeros_like(param) if param.grad is None else param.grad for param in self.params]

    def written(self) -> None:
        """Tell autograd that ``tensors`` were changed. Does nothing here: the tensors are the parameters' own
        memory."""

    def release(self) -> None:
        """Give each parameter its own memory after the last step. Does nothing here: each parameter already has its own
        memory."""
