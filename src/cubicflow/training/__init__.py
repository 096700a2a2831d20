"""Training of flows: :func:`fit`, its settings, its losses and its errors."""

from cubicflow.training.config import TrainingConfig
from cubicflow.training.errors import NonFiniteLossError, RunFolderError, TrainingError, TrainingInterrupted
from cubicflow.training.loop import FitResult, fit
from cubicflow.training.losses import (
    dequantised_likelihood,
    importance_weighted,
    negative_log_likelihood,
    one_pass,
    reverse_kl,
)

__all__ = [
    "FitResult",
    "NonFiniteLossError",
    "RunFolderError",
    "TrainingConfig",
    "TrainingError",
    "TrainingInterrupted",
    "dequantised_likelihood",
    "fit",
    "importance_weighted",
    "negative_log_likelihood",
    "one_pass",
    "reverse_kl",
]
