"""Validation: the losses of the raw and of the averaged weights, and which weights were best so far."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from cubicflow.data.rows import Batch, Rows
from cubicflow.nets.precision import float32_products
from cubicflow.seeds import Stream, derive_seed
from cubicflow.training.checkpoint import AVERAGED, RAW, WeightsKind
from cubicflow.training.losses import is_one_pass
from cubicflow.training.state import TrainingState
from cubicflow.training.step_hook import step_hook

BATCH_ROWS = 2_048
GPU_BATCH_ROWS = 32_768  # at most; small batches waste a GPU, and the activations of larger ones leave its cache
NAMES: dict[WeightsKind, str] = {RAW: "validation_loss", AVERAGED: "validation_loss_averaged"}


class Validation:
    """A function that validates a run.

    The processes share the validation rows. A loss that draws samples draws the same samples at every validation.

    Args:
        state: the state of the run. Its best weights are replaced whenever a validation finds better ones.
        rows: the validation rows, on the device of the run.
        notify: a function that shows a message to the user.
    """

    def __init__(self, state: TrainingState, rows: Rows, notify: Callable[[str], None]) -> None:
        self.state, self.rows = state, rows
        self.step = step = state.training_step
        self.sums = step_hook.prepared_validation(step, notify)
        # A user's loss may keep a graph, which needs far more memory: use the small batch.
        large = step.processes.device.type == "cuda" and is_one_pass(step.loss)
        self.batch_rows = even_size(rows.num_rows, GPU_BATCH_ROWS, step.processes.size) if large else BATCH_ROWS

    def __call__(self) -> dict[str, float]:
        """Validate the raw and the averaged weights, and keep the better ones if they are the best so far.

        Returns the losses by their names in metrics.jsonl.
        """
        state, step = self.state, self.step
        step.processes.copy_from_first_(step.flow.buffers())  # each process has its own batch norm statistics
        losses: dict[WeightsKind, float] = {RAW: self.mean_loss()}
        if step.averages is not None:
            with step.averages.in_place():
                losses[AVERAGED] = self.mean_loss()
        state.waited += 1
        winner = min(losses, key=lambda weights: losses[weights] if math.isfinite(losses[weights]) else math.inf)
        found = losses[winner]
        if math.isfinite(found) and (state.best_loss is None or found < state.best_loss):
            state.best_loss, state.waited = found, 0
            state.keep(winner)
        return {NAMES[weights]: value for weights, value in losses.items()}

    @torch.no_grad()
    def mean_loss(self) -> float:
        """Return the weighted mean loss of the rows with the flow's present weights, in evaluation mode and without
        TF32."""
        step = self.step
        step.flow.eval()
        total = torch.zeros(2, dtype=torch.float64, device=step.processes.device)
        for i, part in enumerate(self.rows.in_order(self.batch_rows)):
            if i % step.processes.size == step.processes.rank:
                seeded = step.randomness.seeded(derive_seed(step.config.seed, Stream.VALIDATION, i))
                with seeded, float32_products(tf32=False, device=step.processes.device):
                    total += self.sums(part.to(step.processes.device, step.dtype))
        step.flow.train()
        loss, weight = step.processes.sum_(total).tolist()
        return float(loss / weight)

    def first_batch(self) -> Batch:
        """Return the first rows, on the device of the run."""
        rows = next(self.rows.in_order(BATCH_ROWS))
        return rows.to(self.step.processes.device, self.step.dtype)


def even_size(rows: int, most: int, processes: int) -> int:
    """Return the size of batches of at most ``most`` rows: as few as give every process the same number of batches, and
    of nearly equal sizes.

    >>> even_size(100, 40, 1), even_size(100, 40, 4)
    (34, 25)
    """
    rounds = math.ceil(rows / (most * processes))
    return math.ceil(rows / max(rounds * processes, 1))
