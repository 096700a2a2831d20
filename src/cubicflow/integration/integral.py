"""What an integration found, and how far to trust it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.integration.bounds import Bounds
from cubicflow.integration.evaluations import Fold

FEW_EFFECTIVE = 200  # below so many effective points an error bar is itself a guess
LARGE_SHARE = 0.05  # one weight of this share of all makes the error a matter of luck
SMALL_CHANCE = 1e-3  # that rounds which agree would differ so much
JUDGED = 100  # effective points from which a round's own error is used


@dataclass(frozen=True)
class Integral:
    """The integral of f, its standard error, and what tells whether the error can be trusted.

    Attributes:
        estimate: of the integral.
        error: one standard error of the estimate, from the spread of independent replicates.
        evaluations: how many points f was given, adaptation counted.
        effective: how many points of a perfect sampler the weighted points are worth.
        largest_share: the largest |weight|, as a part of their sum.
        chi_square: of the rounds' own estimates against their mean, with ``degrees`` of freedom.
        degrees: rounds with enough effective points to be compared, less 1.
        warning: why the error cannot be trusted, in words; empty where nothing speaks against it.

    >>> import cubicflow as cf
    >>> found = cf.integrate(lambda x: x[:, 0] * x[:, 1], [(0, 1), (0, 2)], evaluations=20_000)
    >>> abs(found.estimate - 1) < 5 * found.error < 0.01
    True
    >>> x, weights = found.weighted_samples()
    >>> x.shape == (found.evaluations, 2), bool(abs(weights.sum() - found.estimate) < 1e-9)
    (True, True)
    """

    estimate: float
    error: float
    evaluations: int
    effective: float
    largest_share: float
    chi_square: float
    degrees: int
    warning: str
    _points: Tensor = field(repr=False)
    _weights: Tensor = field(repr=False)

    def __str__(self) -> str:
        figures = (
            f"{self.estimate:.8g} ± {self.error:.2g} ({self.evaluations:,} evaluations worth {self.effective:,.0f}, "
            f"largest weight {self.largest_share:.1g} of all, chi-square {self.chi_square:.1f} for {self.degrees})"
        )
        return f"{figures}\n{self.warning}" if self.warning else figures

    def weighted_samples(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All points (N, D) and their weights (N,). Weights sum to the estimate, and the weights times g of their
        points to an estimate of the integral of f g."""
        return self._points.numpy(), self._weights.numpy()

    def unweighted_samples(self, n: int | None = None, seed: int = 0) -> NDArray[np.float64]:
        """n points of density f / integral, (n, D): drawn from the weighted ones, each as often as its weight says. By
        default as many as the weighted points are worth."""
        if bool((self._weights < 0).any()):
            raise ValueError("f changes its sign, so it is no density to draw from; use weighted_samples()")
        if not bool(self._weights.any()):
            raise ValueError("f was 0 at every point, so there is no density to draw from")
        n = max(1, int(self.effective)) if n is None else n
        generator = torch.Generator().manual_seed(seed)
        marks = (torch.arange(n, dtype=torch.float64) + torch.rand(1, generator=generator, dtype=torch.float64)) / n
        edges = self._weights.cumsum(0)
        chosen = torch.searchsorted(edges / edges[-1], marks).clamp(max=len(edges) - 1)
        return self._points[chosen[torch.randperm(n, generator=generator)]].numpy()


def summarise(folds: list[Fold], bounds: Bounds) -> Integral:
    """The result of all folds."""
    sizes = [len(fold) for fold in folds]
    found = [fold.estimate() for fold in folds]
    parts = [n / sum(sizes) for n in sizes]
    estimate = sum(part * value for part, (value, _) in zip(parts, found, strict=True))
    error = math.sqrt(sum(part**2 * variance for part, (_, variance) in zip(parts, found, strict=True)))
    weights = torch.cat([part * fold.weights for part, fold in zip(parts, folds, strict=True)])
    largest = float(weights.abs().max())
    relative = weights.abs() / largest if largest > 0 else weights  # squares of tiny weights would be 0
    total = float(relative.sum())
    chi_square, degrees = _chi_square([rounds for fold in folds for rounds in fold.round_estimates()])
    effective = total**2 / float(relative.square().sum()) if largest > 0 else 0.0
    share = 1 / total if largest > 0 else 0.0
    return Integral(
        estimate=estimate,
        error=error if largest > 0 else math.inf,
        evaluations=sum(sizes),
        effective=effective,
        largest_share=share,
        chi_square=chi_square,
        degrees=degrees,
        warning=_warning(sum(sizes), effective, share, chi_square, degrees),
        _points=bounds.from_cube(torch.cat([fold.u for fold in folds]))[0],
        _weights=weights,
    )


def _chi_square(rounds: list[tuple[float, float, float]]) -> tuple[float, int]:
    judged = [(value, variance) for value, variance, worth in rounds if worth >= JUDGED and variance > 0]
    if len(judged) < 2:
        return 0.0, 0
    precision = sum(1 / variance for _, variance in judged)
    mean = sum(value / variance for value, variance in judged) / precision
    return sum((value - mean) ** 2 / variance for value, variance in judged), len(judged) - 1


def _warning(evaluations: int, effective: float, share: float, chi_square: float, degrees: int) -> str:
    if effective == 0:
        return (
            f"f was 0 at all {evaluations:,} points: if it is not 0 everywhere, narrow the bounds to where it is not, "
            "or give more evaluations."
        )
    if effective < FEW_EFFECTIVE:
        return (
            f"The error cannot be trusted: all {evaluations:,} points are worth {effective:.0f}. Give more "
            "evaluations, or narrow the bounds to where f is large."
        )
    if share > LARGE_SHARE:
        return (
            f"The error cannot be trusted: one point has {share:.0%} of the weight, so others like it were missed. "
            "Give more evaluations, or look for a pole of f."
        )
    if degrees:
        half = torch.tensor([degrees / 2, chi_square / 2], dtype=torch.float64)
        if float(torch.special.gammaincc(half[0], half[1])) < SMALL_CHANCE:
            return (
                f"The error cannot be trusted: rounds disagree, with chi-square {chi_square:.0f} for {degrees} degrees "
                "of freedom. A part of f was found late; give more evaluations."
            )
    return ""
