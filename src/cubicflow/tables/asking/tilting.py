"""Draws that look where the conditions will be met (the cross-entropy method).

A condition on a late column, such as the width of a diamond, is met by few rows whose earlier columns were drawn
without a thought of it. So particles are drawn a few times, and after each time one early column is tilted: its strata
are made as likely as they are among the weighted particles. Of all columns it is the one in which weighted and plain
particles differ most. A stratum keeps a part of its chance whatever happens, so no row that meets the conditions is
lost, and weights take every tilt back.
"""

from __future__ import annotations

import numpy as np

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.asking.particles import Particles, Walk, effective_size

DEFENCE = 0.1  # the part of a stratum's chance that no tilt takes
STRENGTH = 100.0  # the effective size from which strata are estimated: weights are flattened until they have it
ENOUGH = 0.3  # of particles are effective
BISECTIONS = 30


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


def tilted(walk: Walk, particles: Particles) -> dict[int, Floats]:
    """The tilts of a walk with one of them mended by the particles that were drawn under them."""
    weights = flattened(particles.log_weight)
    best, chosen = 0.0, None
    for i in range(walk.last + 1):
        if i in walk.rules or walk.only(i) is not None:
            continue
        law = walk.law(i)
        stratum = law.stratum(particles.y[:, i])
        drawn = np.bincount(stratum, minlength=law.strata) / len(particles)
        wanted = np.bincount(stratum, weights=weights, minlength=law.strata)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(drawn > 0, wanted / drawn, 1.0)
            gain = float(np.where(wanted > 0, wanted * np.log(ratio), 0.0).sum())
        if gain > best:
            best, chosen = gain, (i, ratio)
    if chosen is None:
        return walk.tilts
    i, ratio = chosen
    before = walk.tilts.get(i, np.ones(len(ratio)))
    return {**walk.tilts, i: before * ((1 - DEFENCE) * ratio + DEFENCE)}
