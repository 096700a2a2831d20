"""What changes from step to step: the learning rate, and how far the averaged weights reach back."""

from __future__ import annotations

import math

from cubicflow.training.config import TrainingConfig


def done(config: TrainingConfig, step: int, elapsed: float) -> float:
    """The part of the run that is over, by steps or by time, whichever is further: 1 at the end."""
    by_steps = step / config.steps if config.steps else 0.0
    by_time = elapsed / config.time_budget if config.time_budget else 0.0
    return min(max(by_steps, by_time), 1.0)


def learning_rate(config: TrainingConfig, step: int, elapsed: float) -> float:
    """Linear warm-up times a cosine that ends at 0.

    >>> config = TrainingConfig(steps=100, warmup_steps=0, learning_rate=1.0)
    >>> [round(learning_rate(config, step, 0.0), 3) for step in (0, 50, 100)]
    [1.0, 0.5, 0.0]
    """
    warmup = min((step + 1) / config.warmup_steps, 1.0) if config.warmup_steps else 1.0
    return config.learning_rate * warmup * (1 + math.cos(math.pi * done(config, step, elapsed))) / 2


def averaging_weight(decay: float, step: int) -> float:
    """The share of the new weights in the average after a step.

    9 / (10 + step) alone would weigh the weights of step s like s^8, so the average forgets the beginning however short
    the run; 1 - decay bounds its reach in long ones.
    """
    return max(1 - decay, 9 / (10 + step))
