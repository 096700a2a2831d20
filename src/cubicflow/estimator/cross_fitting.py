"""Cross-fitting: members that each leave out one fold, trained together and scored on the rows they left out.

The number of training steps is the same for all members. The mean held-out log likelihood over all folds chooses this
number, because a single fold of a small table, for example of thirty rows, is too noisy.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.data.rows import Batch
from cubicflow.estimator.weighted_rows import WeightedRows
from cubicflow.flows import Flow
from cubicflow.progress import Progress
from cubicflow.training import TrainingConfig, negative_log_likelihood
from cubicflow.training.distributed import Processes
from cubicflow.training.step import Step
from cubicflow.weights import Floats

FEWEST_FOLDS = 5
EVERY = 10  # steps between evaluations of the held-out rows
PATIENCE = 8  # evaluations without improvement after which training stops
CLIP_NORM = 5.0
WEIGHT_DECAY = 1e-2  # pulls spline parameters towards 0, which is the identity and the start of training


@dataclass(frozen=True)
class Folds:
    """Assignment of rows to folds. Member m is trained without fold m. There may be more folds than members.

    Attributes:
        labels: (N,), the fold of each row.
        members: number of members.
    """

    labels: NDArray[np.int64]
    members: int

    @classmethod
    def draw(cls, rows: int, members: int, generator: np.random.Generator) -> Folds:
        """Draw folds of equal size: one for each member, at least ``FEWEST_FOLDS``, and at most one for each row."""
        count = min(max(members, FEWEST_FOLDS), rows)
        labels = generator.permutation(rows) % count
        return cls(labels, min(members, count))

    def held_out(self, member: int) -> NDArray[np.bool_]:
        """Return a mask (N,) of the rows that a member is trained without."""
        return np.asarray(self.labels == member)

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Mask (N,) of the rows that some member is trained without."""
        return self.labels < self.members


class Schedule(NamedTuple):
    """The largest number of training steps, and the learning rate of Adam."""

    steps: int
    learning_rate: float


def train(flows: Sequence[Flow], rows: WeightedRows, folds: Folds, schedule: Schedule, display: Progress) -> Floats:
    """Train each member on the rows outside its fold, and restore the weights with the best held-out log likelihood.

    The best weights may be the initial ones. Returns the held-out log density of each row (N,); NaN for rows that no
    member left out.

    A step is that of :func:`cubicflow.training.fit`. The loop differs, because all members stop together.
    """
    began = time.monotonic()
    dtype = torch.get_default_dtype()
    x = torch.as_tensor(rows.x, dtype=dtype)
    context = None if rows.context is None else torch.as_tensor(rows.context, dtype=dtype)
    weights = torch.as_tensor(rows.weights, dtype=dtype)
    seen = [torch.as_tensor(~folds.held_out(m)).nonzero()[:, 0] for m in range(folds.members)]
    batches = [Batch(x[own], None if context is None else context[own], weights[own]) for own in seen]
    steps = [_step(flow, batch) for flow, batch in zip(flows, batches, strict=True)]
    best, best_score, waited = np.empty(0), -np.inf, 0
    states: list[dict[str, Tensor]] = []
    for step in range(schedule.steps + 1):
        if step % EVERY == 0 or step == schedule.steps:
            found = held_out_log_prob(flows, x, context, folds)
            score = float(np.average(found[folds.judged], weights=rows.weights[folds.judged]))
            done = step / max(schedule.steps, 1)
            display.update(done, {"step": step, "validation_loss": -score, "seconds": time.monotonic() - began})
            waited += 1
            if score > best_score or not states:
                best, best_score, waited = found, score, 0
                states = [{key: value.clone() for key, value in flow.state_dict().items()} for flow in flows]
            elif waited >= PATIENCE:
                break
        if step < schedule.steps:
            for take_step, batch in zip(steps, batches, strict=True):
                take_step.set_rates(schedule.learning_rate, averaging_weight=0.0)
                take_step(batch)
    for flow, state, take_step in zip(flows, states, steps, strict=True):
        flow.load_state_dict(state)
        take_step.weights.unflatten()
        flow.eval()
    return best


def _step(flow: Flow, batch: Batch) -> Step:
    """Return a training step on all rows of a member."""
    assert batch.weights is not None  # noqa: S101 - for the type checker: ``train`` sets the weights
    config = TrainingConfig(
        batch_size=len(batch.x), weight_decay=WEIGHT_DECAY, clip_norm=CLIP_NORM, average_decay=None, precision="float32"
    )
    mean_weight = float(batch.weights.double().mean())
    return Step(flow, negative_log_likelihood, config, Processes(batch.x.device), mean_weight)


@torch.no_grad()
def held_out_log_prob(flows: Sequence[Flow], x: Tensor, context: Tensor | None, folds: Folds) -> Floats:
    """Return the log density (N,) of each row under the member that left it out; NaN for a row that no member left
    out."""
    result = np.full(len(x), np.nan)
    for member, flow in enumerate(flows):
        unseen = folds.held_out(member)
        chosen = torch.as_tensor(unseen)
        flow.eval()
        result[unseen] = flow.log_prob(x[chosen], None if context is None else context[chosen]).double().numpy()
        flow.train()
    return result


def stacking_weights(log_probs: Sequence[Floats], weights: Floats, iterations: int = 200) -> Floats:
    """Return the weights of the mixture of models with the highest held-out likelihood (Smyth and Wolpert 1999).

    Expectation-maximisation finds the weights. ``log_probs`` holds an array (N,) for each model. Each model gets one
    pseudo-row, so that no weight becomes 0.

    >>> stacking_weights([np.zeros(98), np.full(98, -50.0)], np.ones(98)).round(3)
    array([0.99, 0.01])
    """
    parts = np.stack(log_probs, axis=1)  # (N, models)
    shares = np.full(parts.shape[1], 1 / parts.shape[1])
    for _ in range(iterations):
        joint = parts + np.log(shares)
        responsibilities = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
        shares = weights @ responsibilities + 1
        shares = shares / shares.sum()
    return shares
