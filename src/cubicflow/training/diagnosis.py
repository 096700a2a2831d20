"""Diagnosis of a loss that became NaN or infinite."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cubicflow.data.rows import Batch
from cubicflow.flows import Flow
from cubicflow.flows.support import data_ends
from cubicflow.training.step import Step


@torch.no_grad()
def likely_cause(step: Step, batch: Batch) -> str:
    """Return a sentence with the likely cause and a remedy, from a batch and the last finite weights."""
    if not bool(batch.x.isfinite().all()):
        return (
            f"some rows overflow {batch.x.dtype}, the dtype of the flow; scale the data, or train in float64 with "
            "flow.double()"
        )
    statistics = step.statistics.copy()
    losses = step.loss_of_rows(batch)
    images = () if step.symmetries is None else step.symmetries.images(batch.x).split(len(batch.x))
    images_are_finite = all(bool(step.loss_of_rows(batch._replace(x=image)).isfinite().all()) for image in images)
    step.statistics.restore(statistics, where=torch.ones_like(step.failed_at, dtype=torch.bool))
    bad = ~losses.isfinite()
    if bool(bad.any()):
        row = batch.x[bad][0].flatten()[:4].tolist()
        shown = ", ".join(f"{value:.4g}" for value in row)
        bad_rows = f"{int(bad.sum())} of {len(losses)} rows have a NaN or infinite loss"
        count = f"{bad_rows}; the first of them starts with [{shown}]"
        if beyond := _outside(step.flow, batch.x[bad][0]):
            return f"{count}; {beyond}; scale the data into the box"
        if int(step.failed_at) != 0 and not _are_outliers(batch.x, bad):
            rate = f"learning_rate={step.config.learning_rate:g}"
            return (
                f"{count}; these rows are not outliers, so earlier steps were too large ({rate}); lower learning_rate"
            )
        return f"{count}; look for outliers, or put a Standardise layer first"
    if not images_are_finite:
        return (
            "images of these rows under symmetries= have a NaN or infinite loss; remove the maps that move rows away "
            "from the data"
        )
    config = step.config
    advice = "lower learning_rate" if config.precision != "bf16" else "lower learning_rate, or use precision='tf32'"
    return f"the gradient overflowed (learning_rate={config.learning_rate:g}, clip_norm={config.clip_norm}); {advice}"


def _outside(flow: Any, row: Tensor) -> str | None:
    """Return how a row leaves the box on which the flow has a density, or None if the row is inside, or if no such box
    is known."""
    ends = data_ends(flow) if isinstance(flow, Flow) else None
    if ends is None:
        return None
    beyond = ((row < ends[0]) | (row > ends[1])).flatten().nonzero()
    if not len(beyond):
        return None
    i = int(beyond[0])
    low, high = ends.flatten(1)[:, i].tolist()
    return f"this flow has a density for values from {low:g} to {high:g} of feature {i}"


def _are_outliers(x: Tensor, bad: Tensor) -> bool:
    """Return whether every bad row is further from the median than every other row.

    At the first step the weights are the initial ones, so the rows must be the cause. At a later step the weights may
    be the cause: bad rows among rows with a finite loss are then not outliers.
    """
    if bool(bad.all()):
        return False
    rows = x.flatten(1).double()
    centre = rows.median(dim=0).values
    spread = (rows - centre).abs().median(dim=0).values.clamp_min(torch.finfo(torch.float32).tiny)
    distance = ((rows - centre).abs() / spread).amax(dim=1)  # (B,)
    return bool(distance[bad].min() > distance[~bad].max())
