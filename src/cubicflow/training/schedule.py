"""Schedules: the learning rate, the weight of the newest weights in their average, and what is due after a step."""

from __future__ import annotations

import math

from cubicflow.training.config import TrainingConfig

LEAST_WARMUP_STEPS = 10  # of a warm-up by time


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
    return (
        config.learning_rate * warmup(config, step, elapsed) * (1 + math.cos(math.pi * done(config, step, elapsed))) / 2
    )


def warmup(config: TrainingConfig, step: int, elapsed: float) -> float:
    """Return the factor of the linear warm-up, from 0 to 1.

    Without ``warmup_steps``, the warm-up is a hundredth of the steps or of the time, whichever ends first. By time it
    also lasts at least ``LEAST_WARMUP_STEPS``: the first step may compile kernels for longer than the whole warm-up.
    """
    if config.warmup_steps is not None:
        return min((step + 1) / config.warmup_steps, 1.0) if config.warmup_steps else 1.0
    by_steps = 100 * (step + 1) / config.steps if config.steps else 0.0
    by_time = 100 * elapsed / config.time_budget if config.time_budget else 0.0
    return min(max(by_steps, min(by_time, (step + 1) / LEAST_WARMUP_STEPS)), 1.0)


class Interval:
    """Decides when a repeated action is due: every ``every`` steps, or if None, after each ``share`` of the run.

    Args:
        every: steps between two actions, or None.
        share: fraction of the run between two actions, if ``every`` is None.
        least: fewest steps between two actions, if ``every`` is None.
    """

    def __init__(self, every: int | None, share: float, least: int = 1) -> None:
        self.every, self.share, self.least = every, share, least
        self.step, self.done = 0, 0.0

    def restart(self, step: int, done: float) -> None:
        """Record the action at a step, or the start of the loop, with the completed fraction of the run."""
        self.step, self.done = step, done

    def is_due(self, step: int, done: float) -> bool:
        """Return whether the action is due after a step."""
        if self.every is not None:
            return step % self.every == 0
        return step - self.step >= self.least and done - self.done >= self.share


def averaging_weight(decay: float, step: int) -> float:
    """Return the weight of the newest weights in their moving average.

    With 9 / (10 + step) alone, the weights of step s count in proportion to s^8, so the average forgets the first steps
    even in a short run. 1 - decay bounds the length of the average in a long run.
    """
    return max(1 - decay, 9 / (10 + step))
