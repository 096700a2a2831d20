"""The result of an integration, with diagnostics of its error."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.arguments import whole_number
from cubicflow.integration.agreement import Agreement, agreement
from cubicflow.integration.bounds import Bounds
from cubicflow.integration.evaluations import Fold
from cubicflow.integration.product_mixture import resample
from cubicflow.weights import effective_size

FEW_EFFECTIVE = 200  # effective points; with fewer the standard error is unreliable
LARGE_SHARE = 0.05  # share of the largest weight above which the standard error is unreliable
SMALL_CHANCE = 1e-3  # p-value below which the rounds disagree
JUDGED = 100  # effective points; a round with fewer is not compared with the others


@dataclass(frozen=True)
class Integral:
    """The integral of f, its standard error, and diagnostics of the error.

    Attributes:
        estimate: the estimate of the integral.
        error: one standard error of the estimate, from the spread of independent replicates.
        evaluations: the number of points at which f was evaluated, including adaptation.
        effective: the effective number of points: a perfect sampler would need as many points for the same error.
        largest_share: the largest |weight| divided by the sum of all |weights|.
        chi_square: the chi-square of the rounds' own estimates against their mean, with ``degrees`` of freedom. For
            rounds that agree, its mean is about 1.2 times ``degrees``, because each round's variance is estimated from
            12 replicates. In runs with fewer than 20,000 evaluations it is about 1.6 times, with 6 replicates.
        degrees: the number of rounds with enough effective points to be compared, minus 1.
        p_value: the probability that rounds that agree differ as much as these by chance. It accounts for the
            estimated variances.
        warning: why the error cannot be trusted; empty if no check failed.

    >>> import cubicflow as cf
    >>> found = cf.integrate(lambda x: x[:, 0] * x[:, 1], [(0, 1), (0, 2)], evaluations=5_000)
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
    p_value: float
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
        """Return all points (N, D) and their weights (N,).

        The weights sum to the estimate. The sum of weight times g(point) estimates the integral of f g.
        """
        return self._points.numpy(), self._weights.numpy()

    def unweighted_samples(self, n: int | None = None, seed: int = 0) -> NDArray[np.float64]:
        """Return n points of density f / integral, (n, D), resampled from the weighted points by their weights.

        By default n is the effective number of points. Raises ValueError if f changes its sign or is 0 at every point.
        """
        if bool((self._weights < 0).any()):
            raise ValueError("f changes its sign, so it is not a density to draw from; use weighted_samples()")
        if not bool(self._weights.any()):
            raise ValueError("f was 0 at every point, so there is no density to draw from")
        n = max(1, int(self.effective)) if n is None else whole_number("n", n, 0)
        generator = torch.Generator().manual_seed(seed)
        chosen = resample(self._weights, n, generator)
        return self._points[chosen[torch.randperm(n, generator=generator)]].numpy()


def summarise(folds: list[Fold], bounds: Bounds) -> Integral:
    """Return the estimate and its diagnostics from all folds."""
    sizes = [len(fold) for fold in folds]
    found = [fold.estimate() for fold in folds]
    parts = [n / sum(sizes) for n in sizes]
    estimate = sum(part * value for part, (value, _) in zip(parts, found, strict=True))
    error = math.hypot(*(part * error for part, (_, error) in zip(parts, found, strict=True)))
    weights = torch.cat([part * fold.weights for part, fold in zip(parts, folds, strict=True)])
    largest = float(weights.abs().max())
    rounds = [one for fold in folds for one in fold.round_estimates()]
    compared = agreement([one for one in rounds if one.effective >= JUDGED and one.error > 0])
    effective = effective_size(weights.abs())
    share = largest / float(weights.abs().sum()) if largest > 0 else 0.0
    return Integral(
        estimate=estimate,
        error=error if largest > 0 else math.inf,
        evaluations=sum(sizes),
        effective=effective,
        largest_share=share,
        chi_square=compared.chi_square,
        degrees=compared.degrees,
        p_value=compared.p_value,
        warning=_warning(sum(sizes), effective, share, compared),
        _points=bounds.from_cube(torch.cat([fold.u for fold in folds]))[0],
        _weights=weights,
    )


def _warning(evaluations: int, effective: float, share: float, compared: Agreement) -> str:
    if effective == 0:
        return (
            f"f was 0 at all {evaluations:,} points. If f is not 0 everywhere, narrow the bounds to where f is not 0, "
            "or give more evaluations."
        )
    if effective < FEW_EFFECTIVE:
        return (
            f"The error cannot be trusted: all {evaluations:,} points are worth only {effective:.0f} effective points. "
            "Give more evaluations, or narrow the bounds to where f is large."
        )
    if share > LARGE_SHARE:
        return (
            f"The error cannot be trusted: one point has {share:.0%} of the weight, so similar points were probably "
            "missed. Give more evaluations, or look for a pole of f."
        )
    if compared.p_value < SMALL_CHANCE:
        return (
            f"The error cannot be trusted: rounds disagree, with chi-square {compared.chi_square:.0f} for "
            f"{compared.degrees} degrees of freedom, p-value {compared.p_value:.0e}. A part of f was found late; give "
            "more evaluations."
        )
    return ""
