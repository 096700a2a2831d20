"""Averaged weights: an exponential moving average of a flow's weights, often better on validation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from cubicflow.training.weights import Weights


class Averages:
    """Exponential moving averages of a flow's weights.

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
        self.weights.written()
