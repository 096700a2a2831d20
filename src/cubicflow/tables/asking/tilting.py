"""Draws that look where the conditions will be met (the cross-entropy method).

A condition on a late column, such as the width of a diamond, is met by few rows whose earlier columns were drawn
without a thought of it. So particles are drawn a few times, and after each time one early column is tilted: its strata
are made as likely as they are among the weighted particles. Of all columns it is the one in which weighted and plain
particles differ most. Strata with much of the weight are cut finer for the next time. A stratum keeps a part of its
chance whatever happens, so no row that meets the conditions is lost, and weights take every tilt back.
"""

from __future__ import annotations

import numpy as np

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.asking.column_law import NumberLaw
from cubicflow.tables.asking.particles import Particles, Tilt, Walk, effective_size

DEFENCE = 0.1  # the part of a stratum's chance that no tilt takes, so that no weight is above its inverse
STRENGTH = 100.0  # the effective size from which strata are estimated: weights are flattened until they have it
ENOUGH = 0.3  # of particles are effective
BISECTIONS = 30
MUCH = 0.1  # of the weight in one stratum
PARTS = 4  # that it is cut into
MOST_KNOTS = 120


def flattened(log_weight: Floats, size: float = STRENGTH) -> Floats:
    """Weights to the power that leaves an effective size, at most 1; they sum to 1.

    >>> round(effective_size(np.log(flattened(np.linspace(0.0, 50.0, 400)))))
    100
    """
    shifted = np.where(np.isfinite(log_weight), log_weight - log_weight.max(), -np.inf)
    low, high = 0.0, 1.0
    power = 1.0
    if effective_size(shifted) < size:
        for _ in range(BISECTIONS):
            power = (low + high) / 2
            low, high = (power, high) if effective_size(power * np.maximum(shifted, -1e6)) >= size else (low, power)
    w = np.where(np.isfinite(shifted), np.exp(power * np.maximum(shifted, -1e6)), 0.0)
    found: Floats = w / w.sum()
    return found


def tilted(walk: Walk, particles: Particles) -> dict[int, Tilt]:
    """The tilts of a walk with one of them mended by the particles that were drawn under them."""
    weights = flattened(particles.log_weight)
    size = 1 / float((weights**2).sum())
    best, chosen = 0.0, None
    for i in range(walk.last + 1):
        if i in walk.rules or walk.only(i) is not None:
            continue
        law = walk.law(i)
        stratum = law.stratum(particles.y[:, i])
        drawn = np.bincount(stratum, minlength=law.strata) / len(particles)
        wanted: Floats = np.bincount(stratum, weights=weights, minlength=law.strata).astype(np.float64)
        # of so few effective particles, shares of strata differ by chance: half a particle for each is as it was drawn
        occupied = np.count_nonzero(drawn)
        wanted = (size * wanted + occupied / 2 * drawn) / (size + occupied / 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(drawn > 0, wanted / drawn, 1.0)
            gain = float(np.where(wanted > 0, wanted * np.log(ratio), 0.0).sum()) - occupied / (2 * size + occupied) / 4
        if gain > best:
            best, chosen = gain, (i, ratio, wanted, drawn)
    if chosen is None:
        return walk.tilts
    i, ratio, wanted, drawn = chosen
    law = walk.law(i)
    knots = law.knots if isinstance(law, NumberLaw) else np.empty(0)
    before = walk.tilts[i].factors if i in walk.tilts else np.ones(len(ratio))
    plain = drawn / before  # as often as strata are drawn without the tilt
    factors = before * ratio
    factors /= float((plain / plain.sum()) @ factors)
    found = Tilt((1 - DEFENCE) * factors + DEFENCE, knots)
    return {**walk.tilts, i: cut_finer(found, wanted) if isinstance(law, NumberLaw) else found}


def cut_finer(tilt: Tilt, wanted: Floats) -> Tilt:
    """The same tilt, the strata of numbers with much of the weight (``wanted``, of every stratum) in several parts.

    >>> cut_finer(Tilt(np.array([1.0, 5.0, 9.0]), np.array([0.5])), np.array([0.0, 0.9, 0.1])).knots.tolist()
    [0.5, 0.625, 0.75, 0.875]
    """
    ends = np.concatenate([[0.0], tilt.knots, [1.0]])
    strata = len(tilt.knots) + 1
    parts = np.where(wanted[:strata] > MUCH, PARTS, 1)
    if strata - 1 + int((parts - 1).sum()) > MOST_KNOTS:
        return tilt
    edges = [np.linspace(a, b, n, endpoint=False) for a, b, n in zip(ends[:-1], ends[1:], parts, strict=True)]
    factors = np.concatenate([np.repeat(tilt.factors[:strata], parts), tilt.factors[strata:]])
    return Tilt(factors, np.concatenate(edges)[1:])
