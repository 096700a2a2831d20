"""The state of a run: all values that are needed to resume it exactly."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from cubicflow.flows.untrusted import is_usable
from cubicflow.training.checkpoint import AVERAGED, RAW, RunNumbers, WeightsKind
from cubicflow.training.errors import cannot_resume
from cubicflow.training.step import Step


class TrainingState(RunNumbers):
    """Numbers of a run, and its tensors by name.

    Random numbers and the order of the rows are functions of the seed and the step, so they are not part of the state.

    Attributes:
        training_step: the training step, with its flow, weights, optimiser and averages.
        best: the flow's tensors at the best step, by the names of its state dict.
    """

    def __init__(self, step: Step) -> None:
        super().__init__(0, 0.0, 0, RAW if step.averages is None else AVERAGED, 0, 0, None)
        self.training_step = step
        self.best = {name: value.detach().clone() for name, value in step.flow.state_dict().items()}

    @torch.no_grad()
    def keep(self, weights: WeightsKind) -> None:
        """Copy the flow's tensors, with these weights, to ``best``, and record the step and the kind of weights."""
        self.best_step, self.best_weights = self.step, weights
        step = self.training_step
        with step.averages.in_place() if step.averages is not None and weights == AVERAGED else nullcontext():
            for name, value in step.flow.state_dict().items():
                self.best[name].copy_(value)

    def named_tensors(self) -> dict[str, list[Tensor]]:
        """Return all tensors of the run by the names in the checkpoint.

        Several tensors under one name are saved as one vector, which does not depend on the memory layout of the
        weights.
        """
        step = self.training_step
        tensors = {f"flow.{name}": [value] for name, value in step.flow.state_dict().items()}
        tensors |= {f"best.{name}": [value] for name, value in self.best.items()}
        if step.averages is not None:
            tensors["average"] = step.averages.tensors
        tensors |= {f"optimiser.{name}": values for name, values in step.adam.moments.items()}
        return {**tensors, "step.count": [step.count], "step.loss_sum": [step.loss_sum]}

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the checkpoint, one for each name."""
        every = self.named_tensors()
        for name in {"average", "optimiser.exp_avg", "optimiser.exp_avg_sq"} & every.keys():
            parts = [part.flatten() for part in every[name]]
            every[name] = [torch.cat(parts) if len(parts) > 1 else parts[0]]
        return {name: value for name, (value,) in every.items()}

    @torch.no_grad()
    def restore_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Fill the run's tensors in place: the alignment of their memory, and so the rounding, stays the same.

        Raises RunFolderError if names, shapes, dtypes or values do not fit this run.
        """
        expected = {name: (value.shape, value.dtype) for name, value in self.tensors().items()}
        if expected != {name: (value.shape, value.dtype) for name, value in tensors.items()}:
            raise cannot_resume("the checkpoint's tensors do not fit this flow")
        here = self.named_tensors()
        wrong = [n for n, value in tensors.items() if n != "step.loss_sum" and not is_usable(value, here[n])]
        if wrong:
            raise cannot_resume(f"the checkpoint's {wrong[0]} holds invalid numbers")
        for name, values in here.items():
            saved = tensors[name].flatten().split([value.numel() for value in values])
            for value, part in zip(values, saved, strict=True):
                value.copy_(part.view_as(value))
        self.refresh()

    def refresh(self) -> None:
        """Reload the flow's state dict: some layers keep values that are derived from it."""
        flow = self.training_step.flow
        flow.load_state_dict(flow.state_dict())
