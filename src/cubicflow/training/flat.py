"""All parameters of a flow side by side in one vector."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class FlatParameters:
    """Parameters laid side by side in one vector, of which they become views.

    Clipping, Adam and averaging are then single operations on a vector: over a list of small tensors they keep a GPU
    waiting for most of their time.
    """

    @torch.no_grad()
    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = list(params)
        self.vector = torch.cat([param.detach().flatten() for param in params])
        for param, part in zip(self.params, self._parts(), strict=True):
            param.data = part.view_as(param)

    def forget_gradients(self) -> None:
        """Before a backward pass: what it makes is then taken as it is, not added to something."""
        for param in self.params:
            param.grad = None

    def gradient(self) -> Tensor:
        """The parameters' gradients as one new vector; 0 where there is none."""
        grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in self.params]
        return torch.cat([grad.flatten() for grad in grads])

    def written(self) -> None:
        """Tell autograd that the vector was written: caches of what was made from the parameters look at their
        versions."""
        torch.autograd.graph.increment_version(self.params)

    def release(self) -> None:
        """Give every parameter memory of its own again."""
        for param in self.params:
            param.data = param.detach().clone()

    def _parts(self) -> list[Tensor]:
        return list(self.vector.split([param.numel() for param in self.params]))
