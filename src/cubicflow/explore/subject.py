"""The model of a run as the page uses it: its columns, rows drawn from it, and its answers to conditions."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from cubicflow.explore.threads import raise_if_abandoned
from cubicflow.flows import Flow, Mixture
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.axes import Axis, array_axis, axis_of
from cubicflow.tables.fitted import FittedTable
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.kinds.levels import Levelled
from cubicflow.tables.model.cell_encoder import CellEncoder
from cubicflow.tables.model.cells import WordCells
from cubicflow.tables.model.network import ColumnsModel
from cubicflow.tables.model.plain_rows import table_rows, with_gaps
from cubicflow.tables.query.condition_sets import check_constant, set_of
from cubicflow.tables.query.conditions import read_conditions
from cubicflow.tables.query.constraints import kept_rows
from cubicflow.tables.query.marginals import Marginals, marginals, marginals_of_rows
from cubicflow.tables.query.pool import Pool
from cubicflow.tables.query.strategies import rejected
from cubicflow.tables.table_error import TableError

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
    """

    kind: str

    @cached_property
    @abstractmethod
    def axes(self) -> list[Axis]:
        """The axes of the modelled columns. Their bins fit rows drawn from the model."""

    @abstractmethod
    def rows(self, n: int) -> Floats:
        """Return n rows drawn from the model, or as many as there are. Every call returns the same rows."""

    def many_rows(self) -> Floats:
        """Return rows for a counted density."""
        return self.rows(DENSITY_ROWS)

    @abstractmethod
    def answer(self, conditions: Conditions, *, refine: bool = False) -> Marginals:
        """Return the distributions of all columns given conditions."""

    @property
    def given(self) -> list[Axis]:
        """The axes of the context columns."""
        return []

    def prepare(self) -> bool:
        """Do a part of the work that later answers need. Returns whether there is more."""
        return False


class ColumnsSubject(Subject):
    """The subject of a model of columns."""

    kind = "columns"

    def __init__(self, fitted: FittedTable, like: pa.RecordBatch | None = None) -> None:
        if not isinstance(fitted.flow, ColumnsModel) or fitted.cells is None:
            raise TypeError(f"ColumnsSubject needs a model of columns, got {type(fitted.flow).__name__}")
        self.fitted, self.model, self.encoder = fitted, fitted.flow, fitted.cells
        self.usual = usual_context(fitted)
        self.contexts = Contexts(fitted, like) if self.usual and like is not None else None
        self._pools: dict[tuple[str, ...], Pool] = {}
        self._newest: Pool | None = None
        self._lock = threading.Lock()  # two threads ask for pools

    def pool(self, conditions: Conditions | None = None) -> Pool:
        """Return the pool for the values of context columns in the conditions, or for their usual values."""
        values = {**self.usual, **{name: v for name, v in (conditions or {}).items() if name in self.usual}}
        key = tuple(map(str, values.values()))
        with self._lock:
            if key not in self._pools:
                context, _ = self.encoder.context_from(values, 1)
                if len(self._pools) >= KEPT_CONTEXTS:
                    self._pools.pop(next(iter(self._pools)))
                constraints = self.fitted.constraints
                pool = Pool(self.model, self.encoder, None if context is None else context[0], constraints)
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

    def rows(self, n: int) -> Floats:
        if self.contexts is not None:
            return self.contexts.rows(n)
        pool = self.pool()
        pool.grow_to(n)
        found = self._kept(pool)
        while len(found) < n and not pool.is_full and len(found):
            pool.grow_to(math.ceil(1.1 * n * pool.size / len(found)))
            found = self._kept(pool)
        return found[:n]

    def many_rows(self) -> Floats:
        return self._kept(self.pool()) if self.contexts is None else self.rows(DENSITY_ROWS)

    def _kept(self, pool: Pool) -> Floats:
        """Return the rows of a pool that keep the constraints of the fit."""
        y, walk = pool.all()[0], self.fitted.question(self.usual).walk
        return walk.to_table(y[walk.keeps(y)])

    @cached_property
    def axes(self) -> list[Axis]:
        y = self.rows(FIRST_ROWS)
        cells = self.encoder.cells
        return [axis_of(c, y[:, i], cells[c.name]) for i, c in enumerate(self.encoder.columns)]

    @property
    def given(self) -> list[Axis]:
        return given_axes(self.fitted)

    def answer(self, conditions: Conditions, *, refine: bool = False) -> Marginals:
        question = self.fitted.question({**self.usual, **conditions})
        return marginals(question, self.axes, self.pool(conditions), refine=refine, between=raise_if_abandoned)


class SampledSubject(Subject):
    """A subject that draws rows and keeps the rows that meet the conditions."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[str, ...], Floats] = {}
        self._newest: Conditions = {}
        self._lock = threading.Lock()  # two threads draw rows

    @abstractmethod
    def draw(self, n: int, conditions: Conditions, seed: int) -> Floats:
        """Draw n rows, given the conditions on context columns."""

    @abstractmethod
    def kept(self, y: Floats, conditions: Conditions) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return whether each row meets the conditions on modelled columns."""

    def context_of(self, conditions: Conditions) -> Conditions:  # noqa: ARG002 - subclasses with context columns use it
        """Return the conditions on context columns."""
        return {}

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

    def _held(self, conditions: Conditions) -> int:
        return len(self._drawn.get(self._key(conditions), ()))

    def rows(self, n: int) -> Floats:
        return self._rows(n, {})

    def meeting(self, n: int, conditions: Conditions) -> tuple[Floats, str]:
        """Return at most n rows that meet the conditions, and a sentence on the number of such rows."""
        y = self._rows(max(n, POOL_ROWS), conditions)
        kept = self.kept(y, conditions)
        return y[kept][:n], f"{int(kept.sum()):,} of {len(y):,} drawn rows meet the conditions"

    def prepare(self) -> bool:
        held = self._held(self._newest)
        most = GIVEN_ROWS if self.context_of({}) else POOL_ROWS
        if held < most:
            self._rows(min(2 * max(held, FIRST_ROWS), most), self._newest)
        return held < most // 2

    def answer(self, conditions: Conditions, *, refine: bool = False) -> Marginals:
        n = REFINED_ROWS if refine else max(self._held(conditions), FIRST_ROWS)
        y = self._rows(n, conditions)
        kept = self.kept(y, conditions)
        if not kept.any():
            raise TableError(f"none of {n:,} drawn rows meets these conditions; widen the conditions")
        return marginals_of_rows(rejected(y, {}, kept), self.axes)


class FlowSubject(SampledSubject):
    """The subject of a flow over a table's columns."""

    kind = "flow"

    def __init__(self, fitted: FittedTable, like: pa.RecordBatch | None = None) -> None:
        super().__init__()
        self.fitted, self.usual = fitted, usual_context(fitted)
        self.contexts = Contexts(fitted, like) if self.usual and like is not None else None

    def rows(self, n: int) -> Floats:
        return self._rows(n, {}) if self.contexts is None else self.contexts.rows(n)

    @cached_property
    def axes(self) -> list[Axis]:
        y = self.rows(FIRST_ROWS)
        return [axis_of(c, y[:, i]) for i, c in enumerate(self.fitted.encoder.columns)]

    @property
    def given(self) -> list[Axis]:
        return given_axes(self.fitted)

    def context_of(self, conditions: Conditions) -> Conditions:
        return {**self.usual, **{name: v for name, v in conditions.items() if name in self.usual}}

    def draw(self, n: int, conditions: Conditions, seed: int) -> Floats:
        rows = self.fitted.sample(n, dict(self.context_of(conditions)), seed=seed)
        return self.fitted.numbers(rows)

    def table_meeting(self, n: int, conditions: Conditions) -> tuple[pa.RecordBatch, str]:
        """Return at most n rows of the table that meet the conditions, and a sentence on the number of such rows."""
        y, note = self.meeting(n, conditions)
        _, given = self.fitted.encoder.context_from(self.context_of(conditions), len(y))
        return table_rows(self.fitted.schema, {**given, **self.fitted.encoder.decode_numbers(y)}, len(y)), note

    def kept(self, y: Floats, conditions: Conditions) -> np.ndarray[Any, np.dtype[np.bool_]]:
        kept = np.ones(len(y), np.bool_)
        names = [column.name for column in self.fitted.encoder.columns]
        on_modelled = {name: value for name, value in conditions.items() if name not in self.usual}
        for condition in read_conditions(on_modelled, self.fitted.schema):
            column = self.fitted.schema[condition.column]
            if column.role == "constant":
                check_constant(condition, column)
                continue
            if condition.column not in names:
                raise TableError(f"column {condition.column!r} is not modelled; leave the condition out")
            if condition.relation == "=" and not column.counts_mass:
                raise TableError(
                    f"a single value has probability 0 under a flow; give column {condition.column!r} a range"
                )
            within = set_of(condition, column, gaps=False)  # a flow has no missing values
            kept &= within.contains(y[:, names.index(condition.column)])
        return kept


class ArraySubject(SampledSubject):
    """The subject of a flow over vectors, fitted to an array."""

    kind = "array"

    def __init__(self, flow: Flow | Mixture) -> None:
        super().__init__()
        self.flow = flow
        self.features = int(getattr(flow, "shape", (1,))[0])
        self.names = ["x", "y"] if self.features == 2 else [f"x{i + 1}" for i in range(self.features)]

    @cached_property
    def axes(self) -> list[Axis]:
        y = self.rows(FIRST_ROWS)
        return [array_axis(name, y[:, i]) for i, name in enumerate(self.names)]

    def draw(self, n: int, conditions: Conditions, seed: int) -> Floats:  # noqa: ARG002
        if self.flow.context_features:
            raise TableError("this flow needs context, but the run stores no context; use the flow from Python")
        with torch.no_grad():
            found: Floats = self.flow.sample(n, seed=seed, batch_size=1 << 14).double().cpu().numpy()
        return found

    def kept(self, y: Floats, conditions: Conditions) -> np.ndarray[Any, np.dtype[np.bool_]]:
        kept = np.ones(len(y), np.bool_)
        for name, value in conditions.items():
            if name not in self.names:
                raise TableError(f"there is no column {name!r}; the columns are {', '.join(self.names)}")
            if not isinstance(value, tuple):
                raise TableError(f"a single value has probability 0 under a flow; give column {name!r} a range")
            low, high = (_number(end, default) for end, default in zip(value, (-math.inf, math.inf), strict=True))
            column = y[:, self.names.index(name)]
            kept &= (column >= low) & (column <= high)
        return kept


class Contexts:
    """Rows drawn from a model for the contexts of rows of the data, one context after the other."""

    def __init__(self, fitted: FittedTable, like: pa.RecordBatch) -> None:
        self.fitted, self.like = fitted, like
        self._rows = np.empty((0, 0))
        self._lock = threading.Lock()  # two threads ask for rows

    def rows(self, n: int) -> Floats:
        """Return n rows, or fewer if some break a constraint of the fit. Every call returns the same rows."""
        with self._lock:
            if len(self._rows) < n:
                like = self.like.take(pa.array(np.arange(n) % len(self.like)))
                rows = self.fitted.sample_like(like, n, seed=0)
                table = pa.Table.from_batches([rows])
                for column in self.fitted.schema.context:
                    table = table.append_column(column.name, like.column(column.name))
                batch = table.combine_chunks().to_batches()[0]
                kept = kept_rows(self.fitted.constraints, batch, self.fitted.schema)
                self._rows = self.fitted.numbers(rows)[kept]
            return self._rows[:n]


def usual_context(fitted: FittedTable) -> dict[str, object]:
    """Return a usual value for every context column: the first level, or a number near the median."""
    return {column.name: _usual(column, fitted.cells) for column in fitted.schema.context}


def spelled(values: Mapping[str, object]) -> str:
    """Return the values of columns as text.

    >>> spelled({"species": "Adelie", "mass": 3750})
    'species Adelie, mass 3750'
    """
    return ", ".join(f"{name} {value}" for name, value in values.items())


def given_axes(fitted: FittedTable) -> list[Axis]:
    """Return the axes of the context columns."""
    found = []
    for column in fitted.schema.context:
        y = np.zeros(1)
        if fitted.cells is not None and not isinstance(column, Levelled):
            scale = fitted.cells.cells[column.name].scale  # type: ignore[attr-defined] # columns of numbers have a scale
            y = np.asarray(scale.inverse(np.linspace(0.02, 0.98, 97)))
        elif not isinstance(column, Levelled):
            y = column.needed_map.inverse(np.linspace(-2.0, 2.0, 97))
        found.append(axis_of(column, y))
    return found


def _usual(column: Column, cells: CellEncoder | None) -> object:
    if isinstance(column, Levelled):
        return column.labels[0]
    if cells is not None and not isinstance(own := cells.cells[column.name], WordCells):
        y = own.scale.inverse(np.array([0.5]))  # type: ignore[attr-defined] # columns of numbers have a scale
    else:
        y = column.needed_map.inverse(np.zeros(1))
    return with_gaps(column, np.floor(y) if column.counts_mass else y)[0].as_py()


def _number(value: object, default: float) -> float:
    if value is None:
        return default
    try:
        return float(str(value))
    except ValueError:
        raise TableError(f"{str(value)[:40]!r} is not a number; give a number") from None
