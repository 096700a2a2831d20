"""The hook of training: a step, its weights and its optimiser, which faster versions can replace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from cubicflow.data.rows import Batch
from cubicflow.hooks import hook
from cubicflow.training.optimiser import Adam, Weights

if TYPE_CHECKING:
    from cubicflow.training.step import Step


class StepHook:
    """The plain training step, and its weights and optimiser."""

    def weights(self, params: Sequence[Tensor]) -> Weights:
        """Return the parameters of a flow in the memory layout that steps use."""
        return Weights(params)

    def adam(self, weights: Weights, beta2: float, weight_decay: float) -> Adam:
        """Return the optimiser of the weights."""
        return Adam(weights.tensors, beta2, weight_decay)

    def finish(self, step: Step, gradients: list[Tensor], loss: Tensor) -> Tensor:
        """Do ``step.finish(gradients, loss)``."""
        return step.finish(gradients, loss)

    def prepared_step(self, step: Step, notify: Callable[[str], None]) -> Callable[[Batch], None]:  # noqa: ARG002
        """Return a version of ``step`` for many calls. ``notify`` shows a message to the user."""
        return step

    def prepared_validation(self, step: Step, notify: Callable[[str], None]) -> Callable[[Batch], Tensor]:  # noqa: ARG002
        """Return a version of ``step.validation_sums`` for many calls. Each call may overwrite the result of the call
        before it."""
        return step.validation_sums


step_hook = hook("training", StepHook)
