"""What a step writes: the weights, their averages, the moments of Adam, and buffers such as running means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

BETA1, EPSILON = 0.9, 1e-8  # torch's defaults


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

    def zero_grad(self) -> None:
        """Remove old gradients, so that the next backward pass does not add to them."""
        for param in self.params:
            param.grad = None

    def gradients(self) -> list[Tensor]:
        """Return a gradient for each of ``tensors``: zeros if the parameter has none. The caller may overwrite them."""
        return [torch.zeros_like(param) if param.grad is None else param.grad for param in self.params]

    def bump_versions(self) -> None:
        """Tell autograd that ``tensors`` were changed. Does nothing here: the tensors are the parameters' own
        memory."""

    def unflatten(self) -> None:
        """Give each parameter its own memory after the last step. Does nothing here: each parameter already has its own
        memory."""


class Adam:
    """Adam with decoupled weight decay, by the formulas of ``torch.optim.AdamW``.

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
    def update(self, gradients: Sequence[Tensor], learning_rate: Tensor, skip: Tensor) -> None:
        """Take one step in place. If ``skip`` is true, nothing changes."""
        (count,), means, squares = self.moments.values()
        steps, rate = count.double() + 1, learning_rate.double()
        mean_weight, square_weight = 1 - BETA1**steps, 1 - self.beta2**steps  # bias correction: the moments start at 0
        for tensor, gradient, mean, square in zip(self.tensors, gradients, means, squares, strict=True):
            new_mean = mean.lerp(gradient, 1 - BETA1)
            new_square = self.beta2 * square + (1 - self.beta2) * gradient.square()
            direction = (new_mean / mean_weight) / ((new_square / square_weight).sqrt() + EPSILON)
            moved = tensor * (1 - rate * self.weight_decay) - rate * direction
            for old, new in ((tensor, moved), (mean, new_mean), (square, new_square)):
                old.copy_(torch.where(skip, old, new))
        count += (~skip).to(count.dtype)


class Averages:
    """Exponential moving averages of a flow's weights, often better on validation than the weights.

    Attributes:
        weights: the raw weights.
        tensors: the averages, one for each tensor of ``weights.tensors``.
    """

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.tensors = [tensor.clone() for tensor in weights.tensors]

    def restart(self) -> None:
        """Set the averages to the current weights."""
        for average, tensor in zip(self.tensors, self.weights.tensors, strict=True):
            average.copy_(tensor)

    def update(self, share: Tensor) -> None:
        """Move the averages towards the weights by the fraction ``share``.

        ``share`` is a tensor, so that its value can change between replays of a captured CUDA graph.
        """
        for average, tensor in zip(self.tensors, self.weights.tensors, strict=True):
            average.lerp_(tensor, share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Swap the averages into the weights inside the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for average, tensor in zip(self.tensors, self.weights.tensors, strict=True):
            kept = tensor.clone()
            tensor.copy_(average)
            average.copy_(kept)
        self.weights.bump_versions()


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
