"""The plain values that a run saves: the numbers of a checkpoint, and the result in config.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cubicflow.saved import Count, Range

RAW: Literal["raw"] = "raw"
AVERAGED: Literal["averaged"] = "averaged"
WeightsKind = Literal["raw", "averaged"]
Seconds = Annotated[float, Range(0)]
Loss = Annotated[float, Range(-1e300, 1e300)]


@dataclass
class RunNumbers:
    """Numbers of a run that its checkpoints hold.

    Attributes:
        step: number of steps taken.
        elapsed: seconds of training.
        best_step: the step of the best validation loss.
        best_weights: the kind of weights that were best.
        waited: number of validations since the best step.
        last_read: the step at which the loss was last read.
        best_loss: the best validation loss; None before the first that is finite.
    """

    step: Count
    elapsed: Seconds
    best_step: Count
    best_weights: WeightsKind
    waited: Count
    last_read: Count
    best_loss: Loss | None


@dataclass
class RunResult:
    """Result of a run as config.json holds it; see :class:`~cubicflow.training.FitResult` for the attributes."""

    steps: Count
    stopped: Literal["steps", "time_budget", "patience", "interrupted"]
    validation_loss: Loss | None
    best_step: Count
    weights: WeightsKind
    seconds: Seconds
