"""Everything a run has to remember to go on exactly where it stopped."""

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
    """The numbers of a run, and its tensors by name.

    Random numbers and the order of the rows are functions of the seed and the step, so the step says them all.

    Attributes:
        step: steps taken.
        elapsed: seconds of training.
        best_loss, best_step, best_weights: the best validation, and which weights had it, raw or averaged.
        best: the flow's tensors at that time.
        waited: validations since then.
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
        """Take the flow's tensors as they are for the best."""
        self.best_step, self.best_weights = self.step, weights
        for name, value in self.parts.flow.state_dict().items():
            self.best[name].copy_(value)

    def numbers(self) -> dict[str, Any]:
        """The plain values, as JSON knows them."""
        best_loss = self.best_loss if math.isfinite(self.best_loss) else None
        return {**{name: getattr(self, name) for name in CHECKPOINT}, "best_loss": best_loss}

    def memory(self) -> dict[str, list[Tensor]]:
        """All tensors of the run, by the names they are saved under. Several under one name are saved as one vector,
        so that it does not matter how the weights were laid out."""
        parts = self.parts
        tensors = {f"flow.{name}": [value] for name, value in parts.flow.state_dict().items()}
        tensors |= {f"best.{name}": [value] for name, value in self.best.items()}
        if parts.averages is not None:
            tensors["average"] = parts.averages.tensors
        tensors |= {f"optimiser.{name}": values for name, values in parts.adam.moments.items()}
        return {**tensors, "step.count": [parts.count], "step.loss_sum": [parts.loss_sum]}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors as they are saved."""
        flat = ("average", "optimiser.exp_avg", "optimiser.exp_avg_sq")
        return {
            name: torch.cat([part.flatten() for part in values]) if name in flat else values[0]
            for name, values in self.memory().items()
        }

    @torch.no_grad()
    def restore_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Fill the tensors in place, where they have been: the same memory rounds the same way."""
        expected = {name: (value.shape, value.dtype) for name, value in self.tensors().items()}
        if expected != {name: (value.shape, value.dtype) for name, value in tensors.items()}:
            raise RunFolderError(
                "cannot resume: the checkpoint's tensors are not those of this flow; begin again with overwrite "
                "(--overwrite)"
            )
        here = self.memory()
        wrong = [n for n, value in tensors.items() if n != "step.loss_sum" and not is_usable(value, here[n])]
        if wrong:
            raise RunFolderError(
                f"cannot resume: the checkpoint's {wrong[0]} holds numbers that no run has; begin again with overwrite "
                "(--overwrite)"
            )
        for name, values in here.items():
            saved = tensors[name].flatten().split([value.numel() for value in values])
            for value, part in zip(values, saved, strict=True):
                value.copy_(part.view_as(value))
        self.refresh()

    def restore_numbers(self, numbers: dict[str, Any]) -> None:
        """The inverse of :meth:`numbers`."""
        for name in CHECKPOINT:
            value = numbers[name]
            setattr(self, name, math.inf if name == "best_loss" and value is None else value)

    def refresh(self) -> None:
        """Tell the flow that its tensors were written: layers mirror some of them."""
        self.parts.flow.load_state_dict(self.parts.flow.state_dict())
