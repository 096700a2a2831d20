"""Gaps of rows filled by draws from a model of columns, given all that the row holds.

Every row has particles of its own. They go through the columns in the model's order: a gap is drawn from the column's
conditional, and a value that is there multiplies the weight by its probability under the particle. Where the weights of
a row have become uneven, its particles are drawn again in proportion to them. In the end a draw is one particle of the
row, chosen by weight, so what comes after a gap decides as much as what comes before it.

That a cell is missing says nothing here about what it would have held: a gap is drawn given that there is a value, and
values count given that they are there. Rows with the same first gap go together, and share the columns before it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.asking.allowed import everything
from cubicflow.tables.asking.column_law import ColumnLaw, column_law
from cubicflow.tables.asking.particles import Particles, Walk
from cubicflow.tables.cell_encoder import CellEncoder
from cubicflow.tables.cells import ALONE, INTERVAL, WordCells
from cubicflow.tables.columns_model import ColumnsModel
from cubicflow.tables.interval_mass import log_mean_density
from cubicflow.tables.unit_spline import unit_spline

PARTICLES = 64  # of a row
AT_ONCE = 1 << 14  # particles
UNEVEN = 0.5  # of the particles effective, below which they are drawn again


def fill_gaps(
    model: ColumnsModel,
    encoder: CellEncoder,
    y: Floats,
    context: Floats | None,
    generator: torch.Generator,
    *,
    draws: int = 1,
    most_likely: bool = False,
    particles: int = PARTICLES,
) -> Floats:
    """Plain numbers (draws, N, D) of rows (N, D), in the table's order, with their gaps filled.

    ``most_likely`` fills each gap with its most probable word, or the median of its numbers, by all particles.
    """
    walk = Walk(model, encoder, {})
    rows = y[:, walk.places]
    found = np.repeat(rows[None], draws, axis=0)
    first = np.where(np.isnan(rows).any(axis=1), np.isnan(rows).argmax(axis=1), -1)
    for start in range(rows.shape[1]):
        members = np.flatnonzero(first == start)
        for chunk in np.array_split(members, max(math.ceil(len(members) * particles / AT_ONCE), 1)):
            if len(chunk):
                told = None if context is None else context[chunk]
                found[:, chunk] = _fill(walk, rows[chunk], told, start, generator, draws, most_likely, particles)
    return np.stack([walk.to_table(each) for each in found])


def _fill(
    walk: Walk,
    rows: Floats,
    context: Floats | None,
    start: int,
    generator: torch.Generator,
    draws: int,
    most_likely: bool,
    particles: int,
) -> Floats:
    """(draws, n, D) of rows (n, D) whose first gap is in column ``start``."""
    count, columns = rows.shape
    own = Walk(walk.model, walk.encoder, {})
    state = _started(own, count, context)
    for i in range(start):
        own.settle(state, i, rows[:, i])
    row_of = np.repeat(np.arange(count), particles)
    state = state.take(row_of)
    state.log_weight = np.zeros(len(row_of))
    chooser = np.random.default_rng(int(torch.randint(1 << 62, (1,), generator=generator, device=generator.device)))
    for i in range(start, columns):
        with torch.no_grad():
            log_outcomes, params = own.model.column_law(i, state.tokens, state.kinds)
        there = rows[row_of, i]
        gap = np.isnan(there)
        y, log_weight = there.copy(), np.zeros(len(there))
        if gap.any():
            y[gap], log_weight[gap] = _drawn(own, state, i, rows[row_of], gap, log_outcomes, params, generator)
        if not gap.all():
            seen = torch.from_numpy(np.flatnonzero(~gap)).to(log_outcomes.device)
            told = params[seen] if params is not None else None
            log_weight[~gap] = _log_present(own, i, there[~gap], log_outcomes[seen], told)
            log_weight[~gap] = _log_ruled(own, state, i, gap, there, log_weight[~gap])
        own.settle(state, i, y, log_weight)
        if i + 1 < columns:
            state = _drawn_again(state, count, particles, chooser)
    return _chosen(own, state, rows, draws, most_likely, chooser)


def _started(walk: Walk, count: int, context: Floats | None) -> Particles:
    state = walk.start(count)
    if context is not None:
        cells = torch.from_numpy(walk.encoder.context_inputs(context)).to(state.tokens.device)
        with torch.no_grad():
            state.tokens = walk.model.tokens(cells.unflatten(1, (-1, 4)))
    return state


def _drawn(
    walk: Walk,
    state: Particles,
    i: int,
    rows: Floats,
    gap: NDArray[np.bool_],
    log_outcomes: Tensor,
    params: Tensor | None,
    generator: torch.Generator,
) -> tuple[Floats, Floats]:
    """Values of column i for the particles with a gap there, never a gap, and their log weights. Of a column that
    determines others, values are drawn that agree with what the row holds of those."""
    chosen = torch.from_numpy(np.flatnonzero(gap)).to(log_outcomes.device)
    law = column_law(walk.columns[i], walk.cells[i], everything(walk.cells[i], gap=False))
    told = log_outcomes[chosen], None if params is None else params[chosen]
    factors = _agreeing(walk, law, i, rows[gap])
    y, log_weight = law.draw(*told, generator, factors)
    if (cells := walk.cells[i]).gaps:  # given that a value is there
        log_weight = log_weight - torch.log1p(-told[0][:, cells.gap].exp().clamp(max=1 - 1e-12)).cpu().numpy()
    if i in walk.rules:
        determinant, rule = walk.rules[i]
        value = rule.apply(state.y[gap, determinant], np.full(len(y), np.inf))
        y, log_weight = np.where(np.isfinite(value), value, y), np.where(np.isfinite(value), 0.0, log_weight)
    return y, log_weight


def _agreeing(walk: Walk, law: ColumnLaw, i: int, rows: Floats) -> Floats | None:
    """Factors (N, pieces) that prefer values of column i which agree with the columns that it determines; None where it
    determines none, or has more values than a list."""
    dependents = [(j, rule) for j, (determinant, rule) in walk.rules.items() if determinant == i]
    listed = law.listed
    if not dependents or listed is None:
        return None
    factors = np.ones((len(rows), len(listed.y)))
    for j, rule in dependents:
        value = rule.apply(listed.y, np.full(len(listed.y), np.inf))
        there = ~np.isnan(rows[:, j : j + 1])
        agrees = (value == rows[:, j : j + 1]) | np.isposinf(value) | ~there
        factors *= np.where(agrees, 1.0, rule.slack)
    return factors


def _log_present(walk: Walk, i: int, y: Floats, log_outcomes: Tensor, params: Tensor | None) -> Floats:
    """The log probabilities of values given that they are there, without what is the same for all particles of a
    row."""
    cells = walk.cells[i]
    placed = torch.from_numpy(cells.encode(y)).to(log_outcomes.device)
    kind, low, high, log_size = placed.unbind(1)
    found = log_outcomes.gather(1, kind.long().clamp(min=0)[:, None])[:, 0]
    if cells.gaps:
        found = found - torch.log1p(-log_outcomes[:, cells.gap].exp().clamp(max=1 - 1e-12))
    if cells.shape != ALONE and params is not None:
        if cells.shape == INTERVAL:
            inside = log_mean_density(low, high, log_size - math.log1p(-cells.unseen), params, closed=cells.closed)
        else:
            inside = unit_spline(((1 + low - high) / 2).clamp(0, 1), params, closed=cells.closed)[1]
        found = torch.where(kind == 0, found + inside, found)
    result: Floats = torch.where(kind < 0, 0.0, found).cpu().numpy()
    return result


def _log_ruled(
    walk: Walk, state: Particles, i: int, gap: NDArray[np.bool_], there: Floats, log_weight: Floats
) -> Floats:
    """The same of a column that an earlier one determines."""
    if i not in walk.rules:
        return log_weight
    determinant, rule = walk.rules[i]
    return rule.log_conditional(log_weight, state.y[~gap, determinant], there[~gap])


def _drawn_again(state: Particles, count: int, particles: int, chooser: np.random.Generator) -> Particles:
    """Particles drawn again by weight, in rows where weights are uneven."""
    w = _weights(state.log_weight, count, particles)
    uneven = 1 / (w**2).sum(axis=1) < UNEVEN * particles
    if not uneven.any():
        return state
    chosen = np.tile(np.arange(particles), (count, 1))
    chosen[uneven] = _systematic(w[uneven], particles, chooser)
    log_weight = np.where(uneven[:, None], 0.0, np.log(np.maximum(w, 1e-300))).ravel()
    state = state.take((chosen + particles * np.arange(count)[:, None]).ravel())
    state.log_weight = log_weight
    return state


def _weights(log_weight: Floats, count: int, particles: int) -> Floats:
    """(rows, particles), each row with the sum 1."""
    each = log_weight.reshape(count, particles)
    w = np.exp(each - each.max(axis=1, keepdims=True))
    found: Floats = w / w.sum(axis=1, keepdims=True)
    return found


def _systematic(w: Floats, n: int, chooser: np.random.Generator) -> NDArray[np.int64]:
    """(rows, n) places in proportion to the weights of each row, see
    :func:`cubicflow.tables.asking.particles.resample`."""
    ends = np.cumsum(w, axis=1)
    places = (np.arange(n) + chooser.random((len(w), 1))) / n * ends[:, -1:]
    found: NDArray[np.int64] = (ends[:, None, :] <= places[:, :, None]).sum(axis=2)
    return found.clip(max=w.shape[1] - 1)


def _chosen(
    walk: Walk, state: Particles, rows: Floats, draws: int, most_likely: bool, chooser: np.random.Generator
) -> Floats:
    """(draws, n, D): each gap with the value of a particle, or the most likely one."""
    count, columns = rows.shape
    w = _weights(state.log_weight, count, len(state) // count)
    y = state.y.reshape(count, -1, columns)
    if most_likely:
        filled = rows.copy()
        for i in range(columns):
            gap = np.isnan(rows[:, i])
            filled[gap, i] = _best(y[gap, :, i], w[gap], is_word=isinstance(walk.cells[i], WordCells))
        return np.repeat(filled[None], draws, axis=0)
    places = chooser.permuted(_systematic(w, draws, chooser), axis=1)  # (n, draws)
    drawn = np.take_along_axis(y, places[:, :, None], axis=1).transpose(1, 0, 2)
    return np.where(np.isnan(rows), drawn, rows)


def _best(y: Floats, w: Floats, *, is_word: bool) -> Floats:
    """Of particles (n, P) with weights, the level with the most weight, or the weighted median."""
    if not len(y):
        return np.empty(0)
    if is_word:
        levels = y.astype(np.int64)
        votes = np.zeros((len(y), int(levels.max()) + 1))
        np.add.at(votes, (np.arange(len(y))[:, None], levels), w)
        best: Floats = votes.argmax(axis=1).astype(np.float64)
        return best
    order = np.argsort(y, axis=1)
    ends = np.cumsum(np.take_along_axis(w, order, axis=1), axis=1)
    middle = (ends < 0.5).sum(axis=1).clip(max=y.shape[1] - 1)
    sorted_y = np.take_along_axis(y, order, axis=1)
    found: Floats = np.take_along_axis(sorted_y, middle[:, None], axis=1)[:, 0]
    return found
