"""The settings of a training run: types, checks, and defaults that depend on the number of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from cubicflow.arguments import number, one_of, unknown_name, whole_number

PRECISIONS = ("float32", "tf32", "bf16")
MOST_VALIDATION_ROWS = 50_000
VALIDATION_SHARE = 5  # validations take at most 1 / VALIDATION_SHARE of the time of the steps
# Settings that may differ when a run is resumed: they do not change what the run computes.
FREE_TO_CHANGE = ("device", "checkpoint_seconds")
# Settings that older versions did not record, with the values that they used.
ADDED_LATER = {"beta2": 0.999}


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of :func:`cubicflow.training.fit`. :meth:`resolve` replaces None by a default for the number of rows.

    Attributes:
        steps: optimiser steps. Default: 100 epochs, but at least 2,000 and at most 50,000 steps. With a
            ``time_budget`` the default is as many steps as fit into it.
        time_budget: seconds of training. Training ends at ``steps`` or ``time_budget``, whichever comes first; the
            learning rate is 0 at that end.
        batch_size: rows of a global batch, which all processes share. Default: 64 for up to a few thousand rows, more
            for larger data, at most 512.
        learning_rate: peak learning rate of Adam, before the cosine decay.
        warmup_steps: steps of linear warm-up. Default: 1 % of the steps. With a ``time_budget``: 1 % of the steps or of
            the time, whichever ends first.
        beta2: Adam's decay rate of the mean squared gradient. Transformers train better with 0.98.
        weight_decay: decoupled weight decay, as in AdamW. It pulls spline parameters towards 0, which is the identity.
        clip_norm: largest norm of the gradient; larger gradients are scaled down. None disables clipping.
        average_decay: decay rate of the averaged weights; None disables averaging. The average covers about the last
            tenth of the steps so far, and at most 1 / (1 - average_decay) steps.
        validation_fraction: fraction of ``train`` that is split off for validation if no validation rows are given.
            Default: 0.1, but at most 50,000 rows. With 0, training uses all rows and keeps the last weights.
        validate_every: steps between validations. Default: 1 % of the steps, but more if a validation of all rows would
            then take more than a fifth of the time of the steps; see :func:`least_validate_every`. With a
            ``time_budget``: 1 % of the steps or of the time.
        patience: training stops after this many validations without improvement. Default: 20. 0 disables early
            stopping.
        log_every: steps between lines of metrics. Default: a tenth of ``validate_every``; with a ``time_budget``, 0.1 %
            of the steps or of the time.
        precision: precision of matrix products in networks: ``"tf32"`` (float32 on hardware without TF32),
            ``"float32"`` or ``"bf16"``. Splines and log densities use at least float32. Validation uses the flow's
            dtype.
        device: ``"auto"`` for a GPU if there is one, or a name such as ``"cpu"`` or ``"cuda:1"``.
        seed: seed of the row order, the validation split and dropout.
        checkpoint_seconds: seconds between checkpoints; 0 writes a checkpoint at every step.

    >>> TrainingConfig(learning_rate=1e-3).resolve(num_rows=10_000).steps
    3900
    """

    steps: int | None = None
    time_budget: float | None = None
    batch_size: int | None = None
    learning_rate: float = 5e-4
    warmup_steps: int | None = None
    beta2: float = 0.999
    weight_decay: float = 0.0
    clip_norm: float | None = 5.0
    average_decay: float | None = 0.999
    validation_fraction: float | None = None
    validate_every: int | None = None
    patience: int | None = None
    log_every: int | None = None
    precision: str = "tf32"
    device: str = "auto"
    seed: int = 0
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        whole = {"steps": 1, "batch_size": 1, "validate_every": 1, "log_every": 1, "warmup_steps": 0, "patience": 0}
        for name, least in (whole | {"seed": 0}).items():
            self._convert(name, whole_number, least)
        for name in ("time_budget", "learning_rate", "clip_norm"):
            self._convert(name, number, above=0)
        for name in ("weight_decay", "checkpoint_seconds"):
            self._convert(name, number, least=0)
        for name in ("beta2", "average_decay", "validation_fraction"):
            self._convert(name, number, least=0, below=1)
        one_of("precision", self.precision, PRECISIONS)
        if self.steps is not None:
            for name in ("warmup_steps", "validate_every", "log_every"):
                if (value := getattr(self, name) or 0) > self.steps:
                    raise ValueError(f"{name}={value} contradicts steps={self.steps}; use at most {self.steps}")

    @classmethod
    def make(cls, config: Self | None = None, **settings: Any) -> Self:
        """Return ``config``, or the default config, with single settings changed.

        Raises:
            TypeError: a setting is unknown. The message names the closest known setting.
        """
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise TypeError(unknown_name("fit", "training setting", name, known))
        return replace(config, **settings) if config is not None else cls(**settings)

    def completed(self, recorded: Mapping[str, Any]) -> Self:
        """Return the config of a resumed run: settings that are None get the values that the run has recorded.

        So a run continues with the defaults of the version of cubicflow that started it.
        """
        unset = [field.name for field in fields(self) if field.default is None and getattr(self, field.name) is None]
        with suppress(ValueError):  # the comparison with the run reports a wrong value
            return replace(self, **{name: recorded[name] for name in unset if name in recorded})
        return self

    def validation_rows(self, num_rows: int) -> int:
        """Return how many of ``num_rows`` rows to split off for validation."""
        if self.validation_fraction is None:
            return min(math.ceil(num_rows / 10), MOST_VALIDATION_ROWS)
        return round(num_rows * self.validation_fraction)

    def resolve(self, num_rows: int, validation_rows: int | None = None) -> Self:
        """Return the config with defaults for these numbers of training rows and validation rows.

        ``validation_rows`` defaults to the rows that a split would hold out; 0 means no validation. With a
        ``time_budget``, the number of steps is unknown. Then ``steps``, ``warmup_steps``, ``validate_every`` and
        ``log_every`` may stay None, and the loop derives them from the completed fraction of the run.
        """
        batch_size = self.batch_size or min(_default_batch_size(num_rows), num_rows)
        if batch_size > num_rows:
            raise ValueError(f"batch_size={batch_size} is larger than the {num_rows} training rows; make it smaller")
        expected = self.steps or min(max(100 * (num_rows // batch_size), 2_000), 50_000)
        timed = self.time_budget is not None
        if validation_rows is None:
            validation_rows = self.validation_rows(num_rows)
        least = least_validate_every(batch_size, validation_rows, averages=self.average_decay is not None)
        validate_every = self.validate_every or (None if timed else min(max(expected // 100, least), expected))
        for name in ("patience", "validate_every"):
            if not validation_rows and getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)} needs validation rows, but validation_fraction=0; leave one of the "
                    "two out, or give validation rows"
                )
        patience = self.patience if self.patience is not None else 20
        return replace(
            self,
            steps=self.steps if timed else expected,
            batch_size=batch_size,
            warmup_steps=expected // 100 if self.warmup_steps is None and not timed else self.warmup_steps,
            validate_every=validate_every if validation_rows else None,
            patience=patience if validation_rows else 0,
            log_every=self.log_every or (max(validate_every // 10, 1) if validate_every else None),
        )

    def _convert(self, name: str, check: Callable[..., float], *bounds: int, **limits: float) -> None:
        """Check a setting, and convert it to a Python number for JSON. None stays where it has a meaning."""
        value = getattr(self, name)
        if value is not None or not (name in ("clip_norm", "average_decay") or getattr(type(self), name) is None):
            object.__setattr__(self, name, check(name, value, *bounds, **limits))  # the dataclass is frozen


def least_validate_every(batch_size: int, validation_rows: int, *, averages: bool) -> int:
    """Return the fewest steps between validations with which validations take at most a fifth of the steps' time.

    A step costs three passes over a batch: one forward, and a backward of about two. A validation costs one pass over
    the validation rows for each set of weights. The rule counts rows and reads no clock, so it gives the same number on
    every machine.

    >>> least_validate_every(512, 50_000, averages=True)
    326
    """
    passes = validation_rows * (2 if averages else 1)
    return max(math.ceil(VALIDATION_SHARE * passes / (3 * batch_size)), 1)


def _default_batch_size(num_rows: int) -> int:
    """Return a power of two near ``num_rows / 50``, between 64 and 512: small batches regularise small data."""
    return 1 << min(max(round(math.log2(max(num_rows, 1) / 50)), 6), 9)


def describe_changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return a phrase for each setting that differs between two runs, except those in FREE_TO_CHANGE."""
    before = {**{name: value for name, value in ADDED_LATER.items() if name in after}, **before}
    return [
        f"{name} was {before.get(name)!r}, is now {after.get(name)!r}"
        for name in {**before, **after}
        if name not in FREE_TO_CHANGE and before.get(name) != after.get(name)
    ]
