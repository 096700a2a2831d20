"""Imputation: the missing values of a row are drawn from a model of columns, given all other values of the row.

Each row has its own particles, which go through the columns in the model's order. A missing value is drawn from the
column's conditional distribution. A present value multiplies the weight by its probability under the particle. If the
weights of a row become uneven, its particles are resampled by weight. A draw is one particle of the row, chosen by
weight, so values after a missing value matter as much as values before it.

A missing value is computed if a sum gives it. Particles that break another constraint get weight 0.

Imputation assumes that values are missing at random: missing values are drawn, and present values are weighted, given
that the value is present. Rows whose first missing value is in the same column are filled together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.laws.cells import Cells, NumberCells, WordCells
from cubicflow.tables.laws.coder import SetCells
from cubicflow.tables.model.columns import ModelOfColumns
from cubicflow.tables.query.constraints import Constraint
from cubicflow.tables.query.sums import solved_by_sums
from cubicflow.tables.query.walk import Particles, Walk
from cubicflow.tables.schema.sets import Set
from cubicflow.weights import systematic

PARTICLES = 64  # particles per row
AT_ONCE = 1 << 14  # particles in memory at once
UNEVEN = 0.5  # effective share of a row's particles; a row with a smaller share is resampled


def fill_gaps(
    model: ModelOfColumns,
    y: Floats,
    context: Floats | None,
    generator: torch.Generator,
    constraints: Sequence[Constraint],
    draws: int,
    most_likely: bool,
) -> Floats:
    """Return rows (N, D) of plain numbers, in the table's order, with missing values filled: (draws, N, D).

    Drawn values keep ``constraints`` where the row's own values allow it.
    ``most_likely`` fills a missing value with the most probable word, or the median number, of all particles. On a
    circle, the median is the particle's value with the least mean distance from the values of all particles.
    """
    walk = Walk(model, {}, present=True, constraints=constraints)
    rows = y[:, walk.places]
    found = np.repeat(rows[None], draws, axis=0)
    first = np.where(np.isnan(rows).any(axis=1), np.isnan(rows).argmax(axis=1), -1)
    for start in range(rows.shape[1]):
        members = np.flatnonzero(first == start)
        for chunk in np.array_split(members, max(math.ceil(len(members) * PARTICLES / AT_ONCE), 1)):
            if len(chunk):
                walk.context = None if context is None else context[chunk]
                seed = int(torch.randint(1 << 62, (1,), generator=generator, device=generator.device))
                chooser = np.random.default_rng(seed)
                state = _completed(walk, rows[chunk], start, generator, chooser)
                filled = _most_likely(walk, state, rows[chunk])[None] if most_likely else _drawn(state, draws, chooser)
                found[:, chunk] = np.where(np.isnan(rows[chunk]), filled, rows[chunk])
    return walk.to_table(found)


def _completed(
    walk: Walk, rows: Floats, start: int, generator: torch.Generator, chooser: np.random.Generator
) -> Particles:
    """Return the particles of rows (n, D) whose first missing value is in column ``start``, one row after the other."""
    count, columns = rows.shape
    state = walk.begun(rows, start)
    walk.law(start, state)  # the first columns are embedded once for all particles of a row
    row_of = np.repeat(np.arange(count), PARTICLES)
    state, known = state.take(row_of), rows[row_of]
    for i in range(start, columns):
        _step(walk, state, i, known, generator)
        _check(walk, state, i, count)
        if i + 1 < columns:
            state = _resample_uneven(state, count, chooser)
    return state


def _step(walk: Walk, state: Particles, i: int, rows: Floats, generator: torch.Generator) -> None:
    """Set column i of every particle: its known value in ``rows`` (N, D), the value of a sum, or a drawn value.

    A known value is a set of one number. It is equally probable under all particles if no training row had it.
    """
    value, coder = rows[:, i], walk.coders[i]
    # a sum gives the value if the row has all other columns of the sum, or they are drawn
    solved = solved_by_sums(walk, i, np.where(np.isnan(state.y), rows, state.y))
    value = np.where(np.isnan(value) & np.isfinite(solved), solved, value)
    is_known = ~np.isnan(value)
    is_unseen = is_known & (coder.cells.encode(value)[:, 0] < 0)
    law = walk.law(i, state)
    if i in walk.rules:
        law = replace(law, slack=walk.rules[i][1].slack)
    if i in walk.computed:  # the last column of a sum has weight 1, and a value that breaks the sum that of the model
        fixed = np.full(len(value), np.inf) if i not in walk.rules or law.fixed is None else law.fixed
        is_sum = is_known & np.isclose(walk.computed[i](state.y), value, rtol=1e-9, atol=0)
        law = replace(law, fixed=np.where(is_sum, value, fixed))
    within = coder.of(Set.known(value, is_known & ~is_unseen))
    y, log_weight = law.draw(within, generator, _agreeing(walk, within, i, rows))
    walk.settle(state, i, np.where(is_known, value, y), np.where(is_unseen, 0.0, log_weight))


def _check(walk: Walk, state: Particles, i: int, count: int) -> None:
    """Give weight 0 to particles that break a constraint, in rows in which other particles keep it."""
    if i in walk.checks:
        kept = (walk.checks[i](state.y, state.context) & np.isfinite(state.log_weight)).reshape(count, -1)
        kept |= ~kept.any(axis=1, keepdims=True)
        state.log_weight = np.where(kept.ravel(), state.log_weight, -math.inf)


def _agreeing(walk: Walk, within: SetCells, i: int, rows: Floats) -> Floats | None:
    """Return a log tilt (N, J) that prefers values of column i in agreement with the columns that it determines.

    Return None if column i determines no column. Cells with several numbers keep their probability.
    """
    dependents = [(j, rule) for j, (determinant, rule) in walk.rules.items() if determinant == i]
    if not dependents:
        return None
    y, is_single = walk.coders[i].singles(within)
    found = np.zeros(np.broadcast_shapes(y.shape, (len(rows), 1)))
    for j, rule in dependents:
        value = rule.apply(y.ravel(), np.full(y.size, np.inf)).reshape(y.shape)
        disagrees = is_single & np.isfinite(value) & (value != rows[:, j : j + 1]) & ~np.isnan(rows[:, j : j + 1])
        found += np.where(disagrees, math.log(rule.slack), 0.0)
    return found


def _resample_uneven(state: Particles, count: int, chooser: np.random.Generator) -> Particles:
    """Resample the particles of rows with uneven weights."""
    w = _weights(state)
    uneven = 1 / (w**2).sum(axis=1) < UNEVEN * PARTICLES
    if not uneven.any():
        return state
    chosen = np.tile(np.arange(PARTICLES), (count, 1))
    chosen[uneven] = systematic(w[uneven], PARTICLES, chooser.random((int(uneven.sum()), 1)))
    state = state.take((chosen + PARTICLES * np.arange(count)[:, None]).ravel())
    state.log_weight = np.where(uneven[:, None], 0.0, np.log(np.maximum(w, 1e-300))).ravel()
    return state


def _weights(state: Particles) -> Floats:
    """Return weights (rows, PARTICLES) that sum to 1 in each row."""
    each = state.log_weight.reshape(-1, PARTICLES)
    w = np.exp(each - each.max(axis=1, keepdims=True))
    found: Floats = w / w.sum(axis=1, keepdims=True)
    return found


def _drawn(state: Particles, draws: int, chooser: np.random.Generator) -> Floats:
    """Return the values of ``draws`` particles of each row, chosen by weight: (draws, n, D)."""
    w = _weights(state)
    indices = chooser.permuted(systematic(w, draws, chooser.random((len(w), 1))), axis=1)  # (n, draws)
    y = state.y.reshape(*w.shape, -1)
    return np.take_along_axis(y, indices[:, :, None], axis=1).transpose(1, 0, 2)


def _most_likely(walk: Walk, state: Particles, rows: Floats) -> Floats:
    """Return rows (n, D) with the missing values filled: with what sums and rules determine, or by :func:`_middle`."""
    w, filled = _weights(state), rows.copy()
    y = state.y.reshape(*w.shape, -1)
    for i in range(rows.shape[1]):
        gap = np.isnan(rows[:, i])
        filled[gap, i] = _middle(y[gap, :, i], w[gap], walk.coders[i].cells)
        for fixed in (walk.determined(filled, i), solved_by_sums(walk, i, np.where(np.isnan(rows), filled, rows))):
            filled[:, i] = np.where(gap & np.isfinite(fixed), fixed, filled[:, i])
    return filled


def _middle(y: Floats, w: Floats, cells: Cells) -> Floats:
    """Return for each row of particles (n, P) the value with the least mean distance from all particles.

    It is the weighted median of numbers. Any two words have the same distance, so it is the word with the most weight.
    """
    apart = np.abs(y[:, :, None] - y[:, None, :])  # (n, P, P)
    if isinstance(cells, WordCells):
        apart = np.sign(apart)
    elif isinstance(cells, NumberCells) and cells.closed:
        low, high = cells.scale.limits
        apart = np.minimum(apart, high - low - apart)
    best = (apart @ w[:, :, None]).argmin(axis=1)
    return np.take_along_axis(y, best, axis=1)[:, 0]
