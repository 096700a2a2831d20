"""The settings of a training run: typed, checked, and filled in from the number of rows."""

from __future__ import annotations

import math
import operator
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, Self

from cubicflow.near_names import no_such

PRECISIONS = ("float32", "tf32", "bf16")
MOST_VALIDATION_ROWS = 50_000
# Settings that may differ when a run is resumed: they change where and how it runs, not what it computes.
FREE_TO_CHANGE = ("device", "checkpoint_seconds")
# Settings that runs of older versions do not name, and what they had.
ADDED_LATER = {"beta2": 0.999}


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of :func:`cubicflow.training.fit`. What is None is chosen when the number of rows is known.

    Attributes:
        steps: of the optimiser. By default 100 epochs, but at least 2,000 and at most 50,000 steps; with a
            ``time_budget``, as many as fit into it.
        time_budget: seconds of training. The learning rate reaches 0 at whichever of the two ends comes first.
        batch_size: rows of a global batch; several processes share it. By default 64 for a few thousand rows and fewer,
            doubling with the rows up to 512.
        learning_rate: of Adam, before the cosine.
        warmup_steps: of linear warm-up; by default a hundredth of the steps.
        beta2: of Adam, the decay of the mean square of gradients. Transformers train better with 0.98.
        weight_decay: decoupled (AdamW). All-zero spline parameters are the identity, so it pulls towards a simpler map.
        clip_norm: the gradient's norm is cut to this; None for no clipping.
        average_decay: of the averaged weights; None for none. The average reaches back a tenth of the steps so far, and
            never further than 1 / (1 - average_decay) steps.
        validation_fraction: of the rows, where no validation rows are given; by default a tenth, but at most 50,000
            rows. 0 trains on all rows, and keeps the last weights.
        validate_every: steps between validations; by default a hundredth of the steps.
        patience: validations without a better one after which training stops; by default 20. 0 never stops early.
        log_every: steps between lines of metrics; by default a tenth of ``validate_every``.
        precision: of the networks' products: ``"tf32"`` (float32 where there is no TF32), ``"float32"`` or ``"bf16"``.
            Splines and log densities are never below float32, and validation is in the flow's own dtype.
        device: ``"auto"`` for the GPU where there is one, or a name such as ``"cpu"`` or ``"cuda:1"``.
        seed: of the data's order, the validation split and dropout.
        checkpoint_seconds: between checkpoints; 0 writes one at every step.

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
        for name in ("steps", "batch_size", "validate_every", "log_every"):
            self._check(name, whole=True, positive=True)
        for name in ("warmup_steps", "patience", "seed"):
            self._check(name, whole=True)
        for name in ("time_budget", "learning_rate", "clip_norm"):
            self._check(name, positive=True)
        for name in ("weight_decay", "checkpoint_seconds"):
            self._check(name)
        for name in ("beta2", "average_decay", "validation_fraction"):
            self._check(name, below=1)
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(map(repr, PRECISIONS))}, got {self.precision!r}")
        if self.steps is not None:
            for name in ("warmup_steps", "validate_every", "log_every"):
                if (value := getattr(self, name) or 0) > self.steps:
                    raise ValueError(f"{name}={value} contradicts steps={self.steps}: it would never be reached")

    @classmethod
    def make(cls, config: Self | None = None, **settings: Any) -> Self:
        """A config, changed by the settings given; an unknown one is refused with the nearest that exists."""
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise TypeError(no_such("fit", "training setting", name, known))
        return replace(config, **settings) if config is not None else cls(**settings)

    def validation_rows(self, num_rows: int) -> int:
        """How many of the rows to keep for validation, where none are given."""
        if self.validation_fraction is None:
            return min(math.ceil(num_rows / 10), MOST_VALIDATION_ROWS)
        return round(num_rows * self.validation_fraction)

    def resolve(self, num_rows: int, *, has_validation: bool = True) -> Self:
        """The config with everything chosen for this many training rows. ``steps`` stays None for a time budget."""
        batch_size = self.batch_size or min(_default_batch_size(num_rows), num_rows)
        if batch_size > num_rows:
            raise ValueError(
                f"batch_size={batch_size} contradicts the {num_rows} training rows: use a smaller one, or leave it out"
            )
        expected = self.steps or min(max(100 * (num_rows // batch_size), 2_000), 50_000)
        validate_every = self.validate_every or max(expected // 100, 1)
        for name in ("patience", "validate_every"):
            if not has_validation and getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)} contradicts validation_fraction=0: without validation rows there is "
                    "nothing to watch; leave one of the two out, or give validation rows"
                )
        patience = self.patience if self.patience is not None else 20
        return replace(
            self,
            steps=self.steps if self.time_budget is not None else expected,
            batch_size=batch_size,
            warmup_steps=self.warmup_steps if self.warmup_steps is not None else expected // 100,
            validate_every=validate_every if has_validation else None,
            patience=patience if has_validation else 0,
            log_every=self.log_every or max(validate_every // 10, 1),
        )

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values."""
        return asdict(self)

    def _check(self, name: str, *, whole: bool = False, positive: bool = False, below: float = math.inf) -> None:
        """The value of a setting is None where that means something, or a number within its bounds, which becomes a
        number of Python's own."""
        value = getattr(self, name)
        if value is None and (name in ("clip_norm", "average_decay") or getattr(type(self), name) is None):
            return
        number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
        if not number or not 0 <= value < below or (positive and value == 0):
            kind = "a whole number" if whole else "a finite number"
            bounds = ("above 0" if positive else "0 or more") + (f" and below {below:g}" if below < math.inf else "")
            raise ValueError(f"{name} must be {kind}, {bounds}, got {value!r}")
        # A number of NumPy's is none of JSON's. The dataclass is frozen for everyone else.
        plain = operator.index(value) if isinstance(value, Integral) else float(value)
        object.__setattr__(self, name, plain)


def _default_batch_size(num_rows: int) -> int:
    """A power of two near a fiftieth of the rows: noise enough to regularise few rows, and 512 for many."""
    return 1 << min(max(round(math.log2(max(num_rows, 1) / 50)), 6), 9)


def describe_changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The settings in which two runs differ, as phrases, without those that are free to change."""
    before = {**{name: value for name, value in ADDED_LATER.items() if name in after}, **before}
    return [
        f"{name} was {before.get(name)!r}, is now {after.get(name)!r}"
        for name in {**before, **after}
        if name not in FREE_TO_CHANGE and before.get(name) != after.get(name)
    ]
