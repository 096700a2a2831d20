"""Averaged weights: a second set beside the raw ones, smoother, and often better on validation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from cubicflow.training.weights import Weights


class Averages:
    """The exponential averages of a flow's weights, ``tensors`` beside theirs."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.tensors = [tensor.clone() for tensor in weights.tensors]

    def restart(self) -> None:
        """Begin again from the weights as they are."""
        for average, tensor in zip(self.tensors, self.weights.tensors, strict=True):
            average.copy_(tensor)

    def update(self, share: Tensor) -> None:
        """Move by ``share`` (a tensor, so that a captured graph can be told another) towards the weights."""
        for average, tensor in zip(self.tensors, self.weights.tensors, strict=True):
            average.lerp_(tensor, share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The weights hold their averages while this lasts."""
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
