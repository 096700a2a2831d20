"""What steps are made of: the hook of training, in which steps on a GPU become one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from cubicflow.data.rows import Batch
from cubicflow.hooks import hook
from cubicflow.training.adam import Adam
from cubicflow.training.weights import Weights

if TYPE_CHECKING:
    from cubicflow.training.step import Step


class Parts:
    """The plain parts."""

    def weights(self, params: Sequence[Tensor]) -> Weights:
        """The parameters of a flow, laid out for steps."""
        return Weights(params)

    def adam(self, weights: Weights, beta2: float, weight_decay: float) -> Adam:
        """Their optimiser."""
        return Adam(weights.tensors, beta2, weight_decay)

    def repeated(self, step: Step, say: Callable[[str], None]) -> Callable[[Batch], None]:  # noqa: ARG002
        """A step that will be taken many times. ``say`` is for what the user should know about it."""
        return step


parts = hook("training", Parts)
