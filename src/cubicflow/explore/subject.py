"""The model of a run as the page uses it: its columns, rows drawn from it, and its answers to conditions."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from cubicflow.explore.threads import raise_if_abandoned
from cubicflow.tables import FittedTable
from cubicflow.tables.query import Axis, Marginals, Pool, axis_of
from cubicflow.weights import Floats

FIRST_ROWS = 1 << 12  # rows drawn before the first answer
POOL_ROWS = 1 << 16  # rows of a flow that are drawn in idle time
REFINED_ROWS = 1 << 20  # rows of a flow for a refined answer
GIVEN_ROWS = 1 << 14  # rows drawn in idle time for one set of values of context columns
DENSITY_ROWS = 1 << 14  # rows drawn to estimate a density
KEPT_CONTEXTS = 4  # sets of values of context columns whose rows are kept in memory

Conditions = Mapping[str, object]  # from column names to a value, a list, a pair of ends, or None for missing


class FlowRows:
    """Rows (N, D) drawn from a flow for one context. They have the interface of a pool, without distributions of cells.

    Rows that a thread has seen never change.

    Args:
        draw: a function from a number of rows and a seed to rows.
    """

    is_full = False

    def __init__(self, draw: Callable[[int, int], Floats]) -> None:
        self.draw, self.most, self._lock = draw, POOL_ROWS, threading.Lock()
        self.y = draw(FIRST_ROWS, 0)

    @property
    def size(self) -> int:
        return len(self.y)

    def grow(self) -> None:
        """Draw as many rows as there are."""
        self.grow_to(2 * self.size)

    def grow_to(self, rows: int) -> None:
        """Draw rows until there are so many."""
        while self.size < rows:
            with self._lock:  # for one draw
                if (more := min(self.size, rows - self.size)) > 0:
                    self.y = np.concatenate([self.y, self.draw(more, self.size)])


class Subject:
    """A model behind the page. Rows are plain numbers (N, D) in the order of ``axes``.

    A model with context columns draws rows for the contexts of the data. Without data, it draws rows for one usual
    context. Its answers to conditions are for one context: the values in the conditions, or else the usual values.

    Args:
        fitted: the fitted table.
        like: rows of the data, whose contexts the drawn rows have; None without context columns or without data.

    Attributes:
        axes: the axes of the modelled columns. Their bins fit rows drawn from the model.
    """

    def __init__(self, fitted: FittedTable, like: pa.RecordBatch | None = None) -> None:
        self.fitted, self.usual, self.like = fitted, fitted.usual_context(), like
        self._drawn: dict[tuple[str, ...], Pool | FlowRows] = {}
        self._newest: Pool | FlowRows | None = None
        self._of_data = np.empty((0, 0))  # rows drawn for the contexts of the data, one context after the other
        self._lock, self._lock_of_data = threading.Lock(), threading.Lock()  # two threads ask for rows
        y, cells = self.rows(FIRST_ROWS), fitted.model.cells
        self.axes = [axis_of(c, y[:, i], cells.get(c.name)) for i, c in enumerate(fitted.schema.model)]

    @property
    def given(self) -> list[Axis]:
        """The axes of the context columns."""
        return [axis_of(column, self.fitted.model.usual(column)) for column in self.fitted.schema.context]

    def context_of(self, conditions: Conditions) -> dict[str, object]:
        """Return the values of the context columns in the conditions, or their usual values."""
        return {name: conditions.get(name, value) for name, value in self.usual.items()}

    def drawn(self, conditions: Conditions | None = None) -> Pool | FlowRows:
        """Return the drawn rows for the values of context columns in the conditions, or for their usual values."""
        values = self.context_of(conditions or {})
        key = tuple(map(str, values.values()))
        with self._lock:
            if key not in self._drawn:
                if len(self._drawn) >= KEPT_CONTEXTS:
                    self._drawn.pop(next(iter(self._drawn)))
                self._drawn[key] = self._begin(values)
            self._newest = self._drawn[key]
            return self._newest

    def _begin(self, values: Mapping[str, object]) -> Pool | FlowRows:
        fitted = self.fitted
        if not fitted.model.has_laws:
            return FlowRows(lambda n, seed: fitted.numbers(fitted.sample(n, values, seed=seed)))
        context, _ = fitted.encoder.context_from(values, 1)
        pool = Pool(fitted.model.laws(), None if context is None else context[0], fitted.constraints)
        pool.grow_to(FIRST_ROWS)
        return pool

    def prepare(self) -> bool:
        """Draw some of the rows that later answers need. Returns whether there is more to draw."""
        drawn = self._newest or self.drawn()
        most = min(GIVEN_ROWS, drawn.most) if self.usual else drawn.most
        if drawn.size < most:
            drawn.grow()
        return drawn.size < most

    def rows(self, n: int) -> Floats:
        """Return n rows drawn from the model, or fewer if some break a constraint. Every call returns the same rows."""
        if self.like is None:
            drawn = self.drawn()
            drawn.grow_to(n)
            while len(found := kept(drawn)) < n and not drawn.is_full and len(found):
                drawn.grow_to(math.ceil(1.1 * n * drawn.size / len(found)))
            return found[:n]
        with self._lock_of_data:
            if len(self._of_data) < n:
                like = self.like.take(pa.array(np.arange(n) % len(self.like)))
                rows = self.fitted.sample_like(like, n, seed=0)
                self._of_data = self.fitted.numbers(rows)[self.fitted.keeps_constraints(rows, like)]
            return self._of_data[:n]

    def many_rows(self) -> Floats:
        """Return rows for a counted density: those of a pool, which are many soon, or else DENSITY_ROWS."""
        is_pool = self.like is None and self.fitted.model.has_laws
        return kept(self.drawn()) if is_pool else self.rows(DENSITY_ROWS)

    def answer(self, conditions: Conditions, *, refine: bool = False) -> Marginals:
        """Return the distributions of all columns given conditions."""
        given, drawn = {**self.usual, **conditions}, self.drawn(conditions)
        if isinstance(drawn, Pool):
            return self.fitted.marginals(given, self.axes, drawn, refine=refine, between=raise_if_abandoned)
        drawn.grow_to(REFINED_ROWS if refine else 0)
        return self.fitted.marginals(given, self.axes, drawn.y)


def kept(drawn: Pool | FlowRows) -> Floats:
    """Return the drawn rows that keep the constraints of the fit, in the table's order."""
    return drawn.walk.to_table(drawn.y[drawn.walk.keeps(drawn.y)]) if isinstance(drawn, Pool) else drawn.y


def spelled(values: Mapping[str, object]) -> str:
    """Return the values of columns as text.

    >>> spelled({"species": "Adelie", "mass": 3750})
    'species Adelie, mass 3750'
    """
    return ", ".join(f"{name} {value}" for name, value in values.items())
