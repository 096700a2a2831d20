"""Statistics of the scores of test rows: means with errors, scores on other draws, paired differences, verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.floating[Any]]

BETTER, WORSE, TIED = "better", "worse", "indistinguishable"
ENOUGH_SEEDS = 3  # seeds needed to estimate the variance over refits from two models; two seeds may agree by chance


@dataclass(frozen=True)
class Estimate:
    """A mean over test rows, and twice its standard error.

    With several seeds, ``spread`` is the standard deviation of the seeds' means. It measures how much refits differ,
    which the error over rows does not include.
    """

    mean: float
    error: float
    rows: int
    seeds: int = 1
    spread: float | None = None


def estimate(scores: Sequence[Scores]) -> Estimate:
    """Return the mean of per-row scores. ``scores`` has one array for each seed, all over the same rows.

    As in the paper, the error is the error of the mean over rows. Each row's score is averaged over seeds first.

    >>> estimate([np.array([1.0, 3.0])])
    Estimate(mean=2.0, error=2.0, rows=2, seeds=1, spread=None)
    """
    by_seed = np.stack([np.asarray(part, dtype=np.float64) for part in scores])  # (seeds, rows)
    rows = by_seed.shape[1]
    error = 2 * float(by_seed.mean(axis=0).std(ddof=1)) / math.sqrt(rows) if rows > 1 else math.nan
    spread = float(by_seed.mean(axis=1).std(ddof=1)) if len(by_seed) > 1 else None
    return Estimate(float(by_seed.mean()), error, rows, len(by_seed), spread)


@dataclass(frozen=True)
class CarriedOver:
    """An estimate of a model's mean score on other test rows, and twice its standard error.

    ``slope`` and ``correlation`` belong to the regression of the model's scores on the control's.
    """

    mean: float
    error: float
    slope: float
    correlation: float


def carried_over(scores: Sequence[Scores], control: Scores, elsewhere: float, rows: int) -> CarriedOver:
    """Estimate the mean of a model's scores on other rows, on which only the mean of another model's scores is known.

    The other model is the control variate. Rows that are hard for it tend to be hard for the model, so the difference
    of its two means shows how much harder one draw is. The estimate is mean f + b (E - mean g), with the model's
    scores f, the control's scores g, its mean E on the other rows, and the slope b of the regression of f on g.

    The estimate is wrong by the difference of two means of the residuals r = f - b g, over the other rows and over
    ours. Its variance is var(r) (1 / rows + 1 / n), and a part for the error of b, as in a prediction by regression. No
    linear relation of f and g is assumed. This is assumed: both sets are independent draws of one distribution, and the
    control has the same parameters on both.

    Args:
        scores: the model's scores on our n rows, one array for each seed. They are averaged over seeds first.
        control: (n,), the control's scores on our rows.
        elsewhere: the mean of the control's scores on the other rows.
        rows: number of the other rows.

    >>> control = np.array([0.0, 1.0, 2.0, 3.0])
    >>> carried_over([10 + 2 * control], control, elsewhere=2.5, rows=4)
    CarriedOver(mean=15.0, error=0.0, slope=2.0, correlation=1.0)
    """
    model = np.mean([np.asarray(part, dtype=np.float64) for part in scores], axis=0)
    known = np.asarray(control, dtype=np.float64)
    n = len(model)
    (of_model, shared), (_, of_known) = np.cov(model, known)
    slope, moved = shared / of_known, elsewhere - known.mean()
    residual = max(of_model - slope * shared, 0.0) * (n - 1) / (n - 2)  # rounding can make an exact fit negative
    variance = residual * (1 / rows + 1 / n + moved**2 / ((n - 1) * of_known))
    correlation = shared / math.sqrt(of_model * of_known)
    found = (model.mean() + slope * moved, 2 * math.sqrt(variance), slope, correlation)
    return CarriedOver(*map(float, found))


@dataclass(frozen=True)
class Difference:
    """The mean difference of two models' scores on the same rows, and twice its standard error."""

    mean: float
    error: float
    rows: int
    seeds: int

    @property
    def verdict(self) -> str:
        """Whether the first model is better or worse than the second, at two standard errors.

        >>> Difference(0.3, 0.1, 100, 1).verdict, Difference(0.05, 0.1, 100, 1).verdict
        ('better', 'indistinguishable')
        """
        if not abs(self.mean) > self.error:
            return TIED
        return BETTER if self.mean > 0 else WORSE

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


def paired_difference(
    first: Mapping[int, Scores], second: Mapping[int, Scores], refits: float | None = None
) -> Difference | None:
    """Return the difference first minus second over the seeds that both have, or None if they share no seed.

    The variance is the sum of two parts: the variance over test rows, and the variance over refits. Three seeds or more
    give an estimate of the second part. With fewer seeds, the second part is at least 2 ``refits``^2 / number of seeds.
    ``refits`` is the standard deviation of a fit's mean over seeds, pooled over all models on the same dataset.
    """
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return None
    by_seed = np.stack([np.asarray(first[s], np.float64) - np.asarray(second[s], np.float64) for s in seeds])
    rows = by_seed.shape[1]
    of_rows = float(by_seed.mean(axis=0).var(ddof=1)) / rows
    of_fits = float(by_seed.mean(axis=1).var(ddof=1)) / len(seeds) if len(seeds) > 1 else 0.0
    if len(seeds) < ENOUGH_SEEDS and refits is not None:
        of_fits = max(of_fits, 2 * refits**2 / len(seeds))
    return Difference(float(by_seed.mean()), 2 * math.sqrt(of_rows + of_fits), rows, len(seeds))


def mixture_scores(scores: Sequence[Scores]) -> Scores:
    """Return the log densities of rows under the equal mixture of several fits, from the log densities under each fit.

    >>> mixture_scores([np.log([0.2]), np.log([0.4])]).round(4), np.log([0.3]).round(4)
    (array([-1.204]), array([-1.204]))
    """
    by_seed = np.stack([np.asarray(part, dtype=np.float64) for part in scores])
    largest = by_seed.max(axis=0)
    mixed: Scores = largest + np.log(np.exp(by_seed - largest).mean(axis=0))
    return mixed
