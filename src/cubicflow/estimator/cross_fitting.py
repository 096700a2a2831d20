"""Members that each leave out a fold, trained side by side, and judged by the rows they have not seen.

How long to train is one number, chosen for all members together by the mean held-out log likelihood over all folds: on
small tables a single fold of thirty rows would choose by luck.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.data.rows import Batch
from cubicflow.estimator.weighted_rows import Floats, WeightedRows
from cubicflow.flows import Flow
from cubicflow.training.config import TrainingConfig
from cubicflow.training.distributed import World
from cubicflow.training.losses import negative_log_likelihood
from cubicflow.training.progress import Progress
from cubicflow.training.step import Step

CLIP_NORM = 5.0
WEIGHT_DECAY = 1e-2  # all-zero parameters are the identity, so it pulls towards where training began


@dataclass(frozen=True)
class Folds:
    """Which member has not seen which row: ``labels`` (N,) are folds; member m leaves out fold m, and there may be more
    folds than members."""

    labels: NDArray[np.int64]
    members: int

    @classmethod
    def draw(cls, rows: int, members: int, fewest: int, generator: np.random.Generator) -> Folds:
        """Folds of equal size, at least ``fewest`` of them, as far as there are rows for them."""
        count = min(max(members, fewest), rows)
        labels = generator.permutation(rows) % count
        return cls(labels, min(members, count))

    def held_out(self, member: int) -> NDArray[np.bool_]:
        return np.asarray(self.labels == member)

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Rows that some member has not seen."""
        return self.labels < self.members


@dataclass(frozen=True)
class Schedule:
    """Of training side by side: Adam over all rows at once, judged ``every`` so many steps, until ``patience``
    judgements in a row bring nothing better."""

    steps: int
    learning_rate: float
    every: int = 10
    patience: int = 8


def train(flows: Sequence[Flow], rows: WeightedRows, folds: Folds, schedule: Schedule, shown: Progress) -> Floats:
    """Train each member on the rows outside of its fold, and leave all of them where the held-out log likelihood was
    best, which may be where they began. Returns the held-out log density (N,) of every judged row.

    The steps are those of :func:`cubicflow.training.fit`. The loop is not: when to stop is one decision for all."""
    began = time.monotonic()
    dtype = torch.get_default_dtype()
    x = torch.as_tensor(rows.x, dtype=dtype)
    context = None if rows.context is None else torch.as_tensor(rows.context, dtype=dtype)
    weights = torch.as_tensor(rows.weights, dtype=dtype)
    seen = [torch.as_tensor(~folds.held_out(m)).nonzero()[:, 0] for m in range(folds.members)]
    batches = [Batch(x[mine], None if context is None else context[mine], weights[mine]) for mine in seen]
    steps = [_step(flow, batch) for flow, batch in zip(flows, batches, strict=True)]
    best, best_score, waited = np.empty(0), -np.inf, 0
    states: list[dict[str, Tensor]] = []
    for step in range(schedule.steps + 1):
        if step % schedule.every == 0 or step == schedule.steps:
            found = held_out_log_prob(flows, x, context, folds)
            score = float(np.average(found[folds.judged], weights=rows.weights[folds.judged]))
            done = step / max(schedule.steps, 1)
            shown.update(done, {"step": step, "validation_loss": -score, "seconds": time.monotonic() - began})
            waited += 1
            if score > best_score or not states:
                best, best_score, waited = found, score, 0
                states = [{key: value.clone() for key, value in flow.state_dict().items()} for flow in flows]
            elif waited >= schedule.patience:
                break
        if step < schedule.steps:
            for take, batch in zip(steps, batches, strict=True):
                take.set_rates(schedule.learning_rate, averaging_weight=0.0)
                take(batch)
    for flow, state, taken in zip(flows, states, steps, strict=True):
        flow.load_state_dict(state)
        taken.weights.release()
        flow.eval()
    return best


def _step(flow: Flow, batch: Batch) -> Step:
    """A step on all rows of a member at once."""
    assert batch.weights is not None  # noqa: S101 - made above
    config = TrainingConfig(
        batch_size=len(batch.x), weight_decay=WEIGHT_DECAY, clip_norm=CLIP_NORM, average_decay=None, precision="float32"
    )
    mean_weight = float(batch.weights.double().mean())
    return Step(flow, negative_log_likelihood, config, World(batch.x.device), mean_weight)


@torch.no_grad()
def held_out_log_prob(flows: Sequence[Flow], x: Tensor, context: Tensor | None, folds: Folds) -> Floats:
    """(N,): each row's log density under the member that has not seen it; NaN where there is none."""
    result = np.full(len(x), np.nan)
    for member, flow in enumerate(flows):
        mine = folds.held_out(member)
        chosen = torch.as_tensor(mine)
        flow.eval()
        result[mine] = flow.log_prob(x[chosen], None if context is None else context[chosen]).double().numpy()
        flow.train()
    return result


def stacking_weights(log_probs: Sequence[Floats], weights: Floats, iterations: int = 200) -> Floats:
    """The mixture of several models that gives held-out rows the highest likelihood (Smyth and Wolpert 1999), by
    expectation-maximisation. ``log_probs`` are (N,) each. A pseudo-row to each model keeps a lucky one from taking all.

    >>> stacking_weights([np.zeros(98), np.full(98, -50.0)], np.ones(98)).round(3)
    array([0.99, 0.01])
    """
    parts = np.stack(log_probs, axis=1)  # (N, models)
    shares = np.full(parts.shape[1], 1 / parts.shape[1])
    for _ in range(iterations):
        joint = parts + np.log(shares)
        belongs = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
        shares = weights @ belongs + 1
        shares = shares / shares.sum()
    return shares
