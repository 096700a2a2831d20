"""Why a loss may have become NaN or infinite."""

from __future__ import annotations

import torch
from torch import Tensor

from cubicflow.data.rows import Batch
from cubicflow.distributions import Uniform
from cubicflow.training.step import Step


@torch.no_grad()
def likely_cause(step: Step, batch: Batch) -> str:
    """A sentence on the likely cause, and what to do, from the batch at hand and the last finite weights."""
    if not bool(batch.x.isfinite().all()):
        return (
            f"some rows overflow {batch.x.dtype}, the dtype of the flow; scale the data, or train in float64 with "
            "flow.double()"
        )
    statistics = step.statistics.copy()
    losses = step.loss_of_rows(batch)
    images = () if step.symmetries is None else step.symmetries.images(batch.x).split(len(batch.x))
    images_are_finite = all(bool(step.loss_of_rows(batch._replace(x=image)).isfinite().all()) for image in images)
    step.statistics.put_back(statistics, where=torch.ones_like(step.failed_at, dtype=torch.bool))
    bad = ~losses.isfinite()
    if bool(bad.any()):
        row = batch.x[bad][0].flatten()[:4].tolist()
        shown = ", ".join(f"{value:.4g}" for value in row)
        count = f"{int(bad.sum())} of {len(losses)} rows have no finite loss, the first begins with [{shown}]"
        if isinstance(getattr(step.flow, "base", None), Uniform):
            return f"{count}; this flow lives on the unit cube, so scale the data to [0, 1]"
        if int(step.failed_at) != 0 and not _lie_outside(batch.x, bad):
            rate = f"learning_rate={step.config.learning_rate:g}"
            return f"{count}, and they are no outliers: earlier steps were too large ({rate}); lower learning_rate"
        return f"{count}; look for outliers, or put a Standardise layer first"
    if not images_are_finite:
        return (
            "images of these rows under symmetries= have no finite loss; leave out the maps that lead out of the data"
        )
    config = step.config
    advice = "lower learning_rate" if config.precision != "bf16" else "lower learning_rate, or use precision='tf32'"
    return f"the gradient overflowed (learning_rate={config.learning_rate:g}, clip_norm={config.clip_norm}); {advice}"


def _lie_outside(x: Tensor, bad: Tensor) -> bool:
    """Whether the bad rows lie further out than all others: outliers do, and are few.

    The first step meets the flow as it was built, so there the rows are to blame. Later steps meet weights that steps
    have moved. Rows that lie among those with a finite loss are not the cause then.
    """
    if bool(bad.all()):
        return False
    rows = x.flatten(1).double()
    centre = rows.median(dim=0).values
    spread = (rows - centre).abs().median(dim=0).values.clamp_min(torch.finfo(torch.float32).tiny)
    distance = ((rows - centre).abs() / spread).amax(dim=1)  # (B,)
    return bool(distance[bad].min() > distance[~bad].max())
