"""Tilted proposals that prefer rows which meet the conditions (the cross-entropy method).

A condition on a late column, such as the width of a diamond, may be met by few rows, because earlier columns are drawn
without regard to it. So particles are drawn in a few rounds. After each round one early column is tilted: its strata
become as likely as they are among the weighted particles. The tilted column is the one in which weighted and unweighted
particles differ most. Strata with a large share of the weight are split for the next round. A stratum always keeps part
of its probability, so every row that meets the conditions can still be drawn. Weights correct for every tilt.
"""

from __future__ import annotations

import numpy as np

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.query.walk import Particles, Tilt, Walk, effective_size

DEFENCE = 0.1  # share of a stratum's probability that a tilt cannot remove; it bounds weights by 1 / DEFENCE
STRENGTH = 100.0  # effective size for estimates of strata; weights are flattened until they have this effective size
ENOUGH = 0.3  # effective share of the particles at which tilting stops
BISECTIONS = 30
MUCH = 0.1  # share of the weight; a stratum with more is split
PARTS = 4  # parts of a split stratum
MOST_KNOTS = 120


def flattened(log_weight: Floats, size: float = STRENGTH) -> Floats:
    """Return normalised weights, raised to the power, at most 1, at which their effective size reaches ``size``.

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


def improved_tilts(walk: Walk, particles: Particles) -> dict[int, Tilt]:
    """Return the tilts of a walk, one of them improved by particles that were drawn under the current tilts.

    The walk's own dictionary is returned if no column would gain.
    """
    weights = flattened(particles.log_weight)
    size = 1 / float((weights**2).sum())
    best, chosen = 0.0, None
    for i in range(walk.last + 1):
        if walk.is_determined(i) or walk.only(i) is not None:
            continue
        coder, knots = walk.coders[i], walk.knots(i)
        stratum, strata = coder.strata(particles.y[:, i], knots), coder.number_of_strata(knots)
        drawn = np.bincount(stratum, minlength=strata) / len(particles)
        wanted: Floats = np.bincount(stratum, weights=weights, minlength=strata).astype(np.float64)
        # With few effective particles, the shares of strata differ by chance. So the shares are shrunk towards the
        # drawn shares, as if half a particle per occupied stratum had been added.
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
    before = walk.tilts[i].factors if i in walk.tilts else np.ones(len(ratio))
    plain = drawn / before  # proportional to the shares of strata without a tilt
    factors = before * ratio
    factors /= float((plain / plain.sum()) @ factors)
    found = Tilt((1 - DEFENCE) * factors + DEFENCE, walk.knots(i))
    return {**walk.tilts, i: cut_finer(found, wanted) if walk.coders[i].has_knots else found}


def cut_finer(tilt: Tilt, wanted: Floats) -> Tilt:
    """Return the same tilt with strata of numbers split where they have a large share of the weight.

    ``wanted`` is the share of the weight of every stratum. The tilt is returned unchanged if it would get too many
    knots.

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
