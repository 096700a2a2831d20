"""Training of flows: :func:`fit`, its settings, its losses and its errors."""

from cubicflow.training.config import TrainingConfig
from cubicflow.training.divergences import alpha_divergence, importance_weighted, reverse_kl
from cubicflow.training.errors import NonFiniteLossError, RunFolderError, TrainingError, TrainingInterrupted
from cubicflow.training.loop import FitResult, fit
from cubicflow.training.losses import dequantised_likelihood, negative_log_likelihood, one_pass

__all__ = [
    "FitResult",
    "NonFiniteLossError",
    "RunFolderError",
    "TrainingConfig",
    "TrainingError",
    "TrainingInterrupted",
    "alpha_divergence",
    "dequantised_likelihood",
    "fit",
    "importance_weighted",
    "negative_log_likelihood",
    "one_pass",
    "reverse_kl",
]
