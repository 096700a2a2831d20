"""Schedules: the learning rate, and the weight of the newest weights in their average."""

from __future__ import annotations

import math

from cubicflow.training.config import TrainingConfig


def done(config: TrainingConfig, step: int, elapsed: float) -> float:
    """Return the completed fraction of the run: the fraction of its steps or of its time, whichever is larger."""
    by_steps = step / config.steps if config.steps else 0.0
    by_time = elapsed / config.time_budget if config.time_budget else 0.0
    return min(max(by_steps, by_time), 1.0)


def learning_rate(config: TrainingConfig, step: int, elapsed: float) -> float:
    """Return the learning rate: linear warm-up times a cosine that ends at 0.

    >>> config = TrainingConfig(steps=100, warmup_steps=0, learning_rate=1.0)
    >>> [round(learning_rate(config, step, 0.0), 3) for step in (0, 50, 100)]
    [1.0, 0.5, 0.0]
    """
    warmup = min((step + 1) / config.warmup_steps, 1.0) if config.warmup_steps else 1.0
    return config.learning_rate * warmup * (1 + math.cos(math.pi * done(config, step, elapsed))) / 2


def averaging_weight(decay: float, step: int) -> float:
    """Return the weight of the newest weights in their moving average.

    With 9 / (10 + step) alone, the weights of step s count in proportion to s^8, so the average forgets the first steps
    even in a short run. 1 - decay bounds the length of the average in a long run.
    """
    return max(1 - decay, 9 / (10 + step))
