"""The model of a run as the page uses it: its columns, rows drawn from it, and its answers to conditions."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property

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


class Subject(ABC):
    """A model behind the page. Rows are plain numbers (N, D) in the order of ``axes``.

    A model with context columns draws rows for the contexts of the data. Without data, it draws rows for one usual
    context. Its answers to conditions are for one context: the values in the conditions, or else the usual values.

    Args:
        fitted: the fitted table.
        like: rows of the data, whose contexts the drawn rows have; None without context columns or without data.
    """

    def __init__(self, fitted: FittedTable, like: pa.RecordBatch | None = None) -> None:
        self.fitted, self.usual, self.like = fitted, fitted.usual_context(), like
        self._of_data = np.empty((0, 0))  # rows drawn for the contexts of the data, one context after the other
        self._lock, self._lock_of_data = threading.Lock(), threading.Lock()  # two threads ask for rows

    @cached_property
    def axes(self) -> list[Axis]:
        """The axes of the modelled columns. Their bins fit rows drawn from the model."""
        y = self.rows(FIRST_ROWS)
        cells = self.fitted.model.cells
        return [axis_of(c, y[:, i], cells.get(c.name)) for i, c in enumerate(self.fitted.schema.model)]

    @property
    def given(self) -> list[Axis]:
        """The axes of the context columns."""
        return [axis_of(column, self.fitted.model.usual(column)) for column in self.fitted.schema.context]

    def context_of(self, conditions: Conditions) -> dict[str, object]:
        """Return the values of the context columns in the conditions, or their usual values."""
        return {name: conditions.get(name, value) for name, value in self.usual.items()}

    def rows(self, n: int) -> Floats:
        """Return n rows drawn from the model, or fewer if some break a constraint. Every call returns the same rows."""
        if self.like is None:
            return self._rows(n, {})
        with self._lock_of_data:
            if len(self._of_data) < n:
                like = self.like.take(pa.array(np.arange(n) % len(self.like)))
                rows = self.fitted.sample_like(like, n, seed=0)
                self._of_data = self.fitted.numbers(rows)[self.fitted.keeps_constraints(rows, like)]
            return self._of_data[:n]

    def many_rows(self) -> Floats:
        """Return rows for a counted density."""
        return self.rows(DENSITY_ROWS)

    @abstractmethod
    def _rows(self, n: int, conditions: Conditions) -> Floats:
        """Return rows for the context in the conditions."""

    @abstractmethod
    def answer(self, conditions: Conditions, *, refine: bool = False) -> Marginals:
        """Return the distributions of all columns given conditions."""

    @abstractmethod
    def prepare(self) -> bool:
        """Do a part of the work that later answers need. Returns whether there is more."""


class ColumnsSubject(Subject):
    """The subject of a model of columns."""

    def __init__(self, fitted: FittedTable, like: pa.RecordBatch | None = None) -> None:
        super().__init__(fitted, like)
        self.model = fitted.model.laws()
        self._pools: dict[tuple[str, ...], Pool] = {}
        self._newest: Pool | None = None

    def pool(self, conditions: Conditions | None = None) -> Pool:
        """Return the pool for the values of context columns in the conditions, or for their usual values."""
        values = self.context_of(conditions or {})
        key = tuple(map(str, values.values()))
        with self._lock:
            if key not in self._pools:
                context, _ = self.model.encoder.context_from(values, 1)
                if len(self._pools) >= KEPT_CONTEXTS:
                    self._pools.pop(next(iter(self._pools)))
                constraints = self.fitted.constraints
                pool = Pool(self.model, None if context is None else context[0], constraints)
                pool.grow_to(FIRST_ROWS)
                self._pools[key] = pool
            self._newest = self._pools[key]
            return self._newest

    def prepare(self) -> bool:
        pool = self._newest or self.pool()
        most = min(GIVEN_ROWS, pool.most) if self.usual else pool.most
        if pool.size < most:
            pool.grow()
        return pool.size < most

    def _rows(self, n: int, conditions: Conditions) -> Floats:
        pool = self.pool(conditions)
        pool.grow_to(n)
        found = self._kept(pool)
        while len(found) < n and not pool.is_full and len(found):
            pool.grow_to(math.ceil(1.1 * n * pool.size / len(found)))
            found = self._kept(pool)
        return found[:n]

    def many_rows(self) -> Floats:
        return self._kept(self.pool()) if self.like is None else self.rows(DENSITY_ROWS)

    def _kept(self, pool: Pool) -> Floats:
        """Return the rows of a pool that keep the constraints of the fit."""
        y = pool.y
        return pool.walk.to_table(y[pool.walk.keeps(y)])

    def answer(self, conditions: Conditions, *, refine: bool = False) -> Marginals:
        given, pool = {**self.usual, **conditions}, self.pool(conditions)
        return self.fitted.marginals(given, self.axes, pool, refine=refine, between=raise_if_abandoned)


class FlowSubject(Subject):
    """The subject of a flow. It draws rows, and keeps the rows that meet the conditions."""

    def __init__(self, fitted: FittedTable, like: pa.RecordBatch | None = None) -> None:
        super().__init__(fitted, like)
        self._drawn: dict[tuple[str, ...], Floats] = {}
        self._newest: Conditions = {}

    def _key(self, conditions: Conditions) -> tuple[str, ...]:
        return tuple(f"{name}={value}" for name, value in self.context_of(conditions).items())

    def _rows(self, n: int, conditions: Conditions) -> Floats:
        key, found = self._key(conditions), np.empty((0, 0))
        while len(found) < n:
            with self._lock:  # for one draw: rows that a thread has seen never change
                found = self._drawn.get(key, found)
                if (more := min(max(len(found), FIRST_ROWS), n - len(found))) > 0:
                    drawn = self.draw(more, conditions, seed=len(found))
                    found = self._drawn[key] = np.concatenate([found, drawn]) if len(found) else drawn
                for other in [*self._drawn][: max(0, len(self._drawn) - KEPT_CONTEXTS)]:
                    self._drawn.pop(other, None)
        self._newest = conditions
        return found[:n]

    def draw(self, n: int, conditions: Conditions, seed: int) -> Floats:
        """Draw n rows for the context in the conditions."""
        return self.fitted.numbers(self.fitted.sample(n, self.context_of(conditions), seed=seed))

    def _held(self, conditions: Conditions) -> int:
        return len(self._drawn.get(self._key(conditions), ()))

    def prepare(self) -> bool:
        held = self._held(self._newest)
        most = GIVEN_ROWS if self.usual else POOL_ROWS
        if held < most:
            self._rows(min(2 * max(held, FIRST_ROWS), most), self._newest)
        return held < most // 2

    def meeting(self, n: int, conditions: Conditions) -> tuple[pa.RecordBatch, str]:
        """Return at most n rows of the table that meet the conditions, and a sentence on the number of such rows."""
        y = self._rows(max(n, POOL_ROWS), conditions)
        meets, encoder = self.fitted.meets(y, conditions), self.fitted.encoder
        some = y[meets][:n]
        _, given = encoder.context_from(self.context_of(conditions), len(some))
        return encoder.decode(some, given), f"{int(meets.sum()):,} of {len(y):,} drawn rows meet the conditions"

    def answer(self, conditions: Conditions, *, refine: bool = False) -> Marginals:
        y = self._rows(REFINED_ROWS if refine else max(self._held(conditions), FIRST_ROWS), conditions)
        return self.fitted.marginals(conditions, self.axes, y)


def spelled(values: Mapping[str, object]) -> str:
    """Return the values of columns as text.

    >>> spelled({"species": "Adelie", "mass": 3750})
    'species Adelie, mass 3750'
    """
    return ", ".join(f"{name} {value}" for name, value in values.items())
