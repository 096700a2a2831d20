"""The state of a run: all values that are needed to resume it exactly."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cubicflow.flows.untrusted import is_usable
from cubicflow.training.errors import RunFolderError
from cubicflow.training.saved_numbers import AVERAGED, CHECKPOINT, RAW
from cubicflow.training.step import Step


class TrainingState:
    """Numbers of a run, and its tensors by name.

    Random numbers and the order of the rows are functions of the seed and the step, so they are not part of the state.

    Attributes:
        parts: the training step, with its flow, weights, optimiser and averages.
        step: number of steps taken.
        elapsed: seconds of training.
        best_loss: the best validation loss.
        best_step: the step of the best validation loss.
        best_weights: the kind of weights that were best, ``"raw"`` or ``"averaged"``.
        best: the flow's tensors at the best step.
        waited: number of validations since the best step.
        last_read: the step at which the loss was last read.
    """

    def __init__(self, step: Step) -> None:
        self.parts = step
        self.step = 0
        self.elapsed = 0.0
        self.best_loss = math.inf
        self.best_step = 0
        self.best_weights = RAW if step.averages is None else AVERAGED
        self.best = {name: value.detach().clone() for name, value in step.flow.state_dict().items()}
        self.waited = 0
        self.last_read = 0

    @torch.no_grad()
    def keep(self, weights: str) -> None:
        """Copy the flow's current tensors to ``best``, and record the step and the kind of weights.

        Args:
            weights: the kind of weights in the flow, ``"raw"`` or ``"averaged"``.
        """
        self.best_step, self.best_weights = self.step, weights
        for name, value in self.parts.flow.state_dict().items():
            self.best[name].copy_(value)

    def numbers(self) -> dict[str, Any]:
        """Return the plain values for JSON. An infinite loss becomes None."""
        best_loss = self.best_loss if math.isfinite(self.best_loss) else None
        return {**{name: getattr(self, name) for name in CHECKPOINT}, "best_loss": best_loss}

    def named_tensors(self) -> dict[str, list[Tensor]]:
        """Return all tensors of the run by the names in the checkpoint.

        Several tensors under one name are saved as one vector, which does not depend on the memory layout of the
        weights.
        """
        parts = self.parts
        tensors = {f"flow.{name}": [value] for name, value in parts.flow.state_dict().items()}
        tensors |= {f"best.{name}": [value] for name, value in self.best.items()}
        if parts.averages is not None:
            tensors["average"] = parts.averages.tensors
        tensors |= {f"optimiser.{name}": values for name, values in parts.adam.moments.items()}
        return {**tensors, "step.count": [parts.count], "step.loss_sum": [parts.loss_sum]}

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the checkpoint, one for each name."""
        flat = ("average", "optimiser.exp_avg", "optimiser.exp_avg_sq")
        return {
            name: torch.cat([part.flatten() for part in values]) if name in flat else values[0]
            for name, values in self.named_tensors().items()
        }

    @torch.no_grad()
    def restore_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Fill the run's tensors in place: the alignment of their memory, and so the rounding, stays the same.

        Raises RunFolderError if names, shapes, dtypes or values do not fit this run.
        """
        expected = {name: (value.shape, value.dtype) for name, value in self.tensors().items()}
        if expected != {name: (value.shape, value.dtype) for name, value in tensors.items()}:
            raise RunFolderError(
                "cannot resume: the checkpoint's tensors do not fit this flow; start over with overwrite (--overwrite)"
            )
        here = self.named_tensors()
        wrong = [n for n, value in tensors.items() if n != "step.loss_sum" and not is_usable(value, here[n])]
        if wrong:
            raise RunFolderError(
                f"cannot resume: the checkpoint's {wrong[0]} holds invalid numbers; start over with overwrite "
                "(--overwrite)"
            )
        for name, values in here.items():
            saved = tensors[name].flatten().split([value.numel() for value in values])
            for value, part in zip(values, saved, strict=True):
                value.copy_(part.view_as(value))
        self.refresh()

    def restore_numbers(self, numbers: dict[str, Any]) -> None:
        """Set the plain values from the result of :meth:`numbers`."""
        for name in CHECKPOINT:
            value = numbers[name]
            setattr(self, name, math.inf if name == "best_loss" and value is None else value)

    def refresh(self) -> None:
        """Reload the flow's state dict: some layers keep values that are derived from it."""
        self.parts.flow.load_state_dict(self.parts.flow.state_dict())
