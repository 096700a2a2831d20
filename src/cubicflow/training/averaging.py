"""Averaged weights: a second set beside the raw ones, smoother, and often better on validation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from cubicflow.training.flat import FlatParameters


class Averages:
    """The exponential average of a flow's parameters, as one vector beside theirs."""

    def __init__(self, flat: FlatParameters) -> None:
        self.flat = flat
        self.vector = flat.vector.clone()

    def restart(self) -> None:
        """Begin again from the parameters as they are."""
        self.vector.copy_(self.flat.vector)

    def update(self, weight: Tensor) -> None:
        """Move by ``weight`` (a tensor, so that a captured graph can be told another) towards the parameters."""
        self.vector.lerp_(self.flat.vector, weight)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The parameters hold their averages while this lasts."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        kept = self.flat.vector.clone()
        self.flat.vector.copy_(self.vector)
        self.vector.copy_(kept)
        self.flat.written()
