"""Conversion between rows of a table and cells for a model of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.laws.cells import ALONE, CELL, Cells, learn_cells
from cubicflow.tables.laws.coder import coder_of
from cubicflow.tables.laws.independent import IndependentColumns
from cubicflow.tables.model.rules import Rule, find_rules, order_of
from cubicflow.tables.model.table_model import Encoder
from cubicflow.tables.schema import Schema
from cubicflow.tables.table_error import TableError

MIN_EXPECTED = 7.0  # rows with a pair, if columns were independent; 0 such rows would have the probability e^-7
MOST_STRANGERS = 2048  # most pairs of outcomes that never occur together


class CellEncoder(Encoder):
    """The conversion between a table with this schema and the cells of a model of its columns.

    Plain numbers have their columns in the table's order; cells have them in the model's order.

    Args:
        schema: the schema of the table.
        independent: the cells of each modelled column, and the shares of its outcomes among the training rows.
        context: the cells of each context column, by name.
        order: the names of the modelled columns, in the order in which the model predicts them.
        rules: columns that determine other columns.
    """

    def __init__(
        self,
        schema: Schema,
        independent: IndependentColumns,
        context: Mapping[str, Cells],
        order: Sequence[str],
        rules: Sequence[Rule] = (),
    ) -> None:
        super().__init__(schema)
        self.order, self.rules = list(order), list(rules)
        names = [column.name for column in self.columns]
        known = sorted(self.order) == sorted(names) == sorted(independent.cells)
        if not known or not {column.name for column in schema.context} <= context.keys():
            raise TableError("the model's columns differ from the schema's columns")
        every = {name: independent.cells[name] for name in self.order}
        self.independent = IndependentColumns(every, independent.shares)
        self.cells = {**independent.cells, **context}
        self.places = [names.index(name) for name in self.order]  # the place of each column in the table
        self.coders = [
            coder_of(self.columns[place], self.cells[name]) for name, place in zip(self.order, self.places, strict=True)
        ]
        self._rules = {self.order.index(rule.dependent): rule for rule in self.rules}
        # All rules of a determinant have the same keys: the values of the determinant in the training rows.
        self._determinants = {self.order.index(rule.determinant): rule for rule in self.rules}
        if any(self.order.index(rule.determinant) >= i for i, rule in self._rules.items()):
            raise TableError("a column must come after the column that determines it")

    @classmethod
    def learn(cls, schema: Schema, y: Floats, context: Floats | None, weights: Floats | None) -> CellEncoder:
        """Return an encoder learned from the training rows: plain numbers y (N, D) and context (N, C), and weights
        (N,).
        """
        independent = IndependentColumns.learn(schema.model, y, weights, atoms=True)
        given = {c.name: learn_cells(c, context[:, i], weights) for i, c in enumerate(schema.context)}  # type: ignore[index] # not None with context columns
        names = [column.name for column in schema.model]
        rules = find_rules(names, y)
        return cls(schema, independent, given, order_of(names, rules), rules)

    # --- arguments of the model ---

    @cached_property
    def model_arguments(self) -> dict[str, list[int]]:
        """The arguments of :class:`~cubicflow.tables.model.network.ColumnsModel` that describe its columns."""
        found: dict[str, list[int]] = {}
        given = [column.name for column in self.schema.context]
        for prefix, names in (("", self.order), ("context_", given)):
            cells = [self.cells[name] for name in names]
            found[f"{prefix}outcomes"] = [each.outcomes for each in cells]
            found[f"{prefix}shapes"] = [each.shape for each in cells]
            if circles := [i for i, each in enumerate(cells) if each.closed]:
                found[f"{prefix}circles"] = circles
        return found

    def strangers(self, y: Floats) -> list[list[int]]:
        """Return pairs of outcomes, [column, outcome, later column, outcome], that never occur together in these rows.

        A pair counts if independent columns would have it in seven rows or more on average. Columns with a spline, and
        columns that another column determines, are not compared.
        """
        kinds = self.inputs(y).reshape(len(y), len(self.order), CELL)[:, :, 0].astype(np.int64)
        free = [i for i, name in enumerate(self.order) if self.cells[name].shape == ALONE and i not in self._rules]
        found: list[tuple[float, list[int]]] = []
        for first, later in combinations(free, 2):
            both = kinds[(kinds[:, first] >= 0) & (kinds[:, later] >= 0)][:, [first, later]]
            sizes = tuple(self.cells[self.order[i]].outcomes for i in (first, later))
            together = np.bincount(both @ np.array([sizes[1], 1]), minlength=sizes[0] * sizes[1]).reshape(sizes)
            expected = np.outer(together.sum(1), together.sum(0)) / max(len(both), 1)
            for one, other in np.argwhere((together == 0) & (expected >= MIN_EXPECTED)).tolist():
                found.append((-float(expected[one, other]), [first, one, later, other]))
        return [pair for _, pair in sorted(found)[:MOST_STRANGERS]]

    # --- plain numbers to cells ---

    def inputs(self, y: Floats, noise: Floats | None = None) -> Floats:  # noqa: ARG002 - cells need no noise
        """Return the cells (N, 4 D), in the model's order, of plain numbers (N, D)."""
        return self._encoded(self.order, y[:, self.places])

    def context_inputs(self, context: Floats | None) -> Floats | None:
        """Return the cells (N, 4 C) of the context's plain numbers (N, C); None without context."""
        return None if context is None else self._encoded([column.name for column in self.schema.context], context)

    def _encoded(self, names: Sequence[str], y: Floats) -> Floats:
        return np.concatenate([self.cells[name].encode(y[:, i]) for i, name in enumerate(names)], axis=1)

    @property
    def has_dependence(self) -> bool:
        """Whether a column can depend on another: a single column without context cannot."""
        return len(self.order) > 1 or bool(self.schema.context)

    @cached_property
    def presence(self) -> list[tuple[int, float]]:
        """For each column in the model's order, the kind of a missing value, UNSEEN if training rows had none, and the
        log probability of all values that training rows had."""
        return [(cells.gap, math.log1p(-cells.unseen)) for cells in (self.cells[name] for name in self.order)]

    def log_ruled(self, log_p: Floats, y: Floats) -> Floats:
        """Return the log probabilities of cells (N, D), in the model's order, after applying the rules.

        A rule applies only to masses. A dependent column with densities keeps the model's log probabilities.
        """
        if not self._rules:
            return log_p
        result = log_p.copy()
        for i, rule in self._rules.items():
            if self.cells[rule.dependent].only_masses(rule.values):
                determinant, dependent = (
                    y[:, self.places[self.order.index(name)]] for name in (rule.determinant, rule.dependent)
                )
                result[:, i] = rule.log_conditional(log_p[:, i], determinant, dependent)
        return result

    # --- cells to plain numbers ---

    def with_known_determinants(self, i: int, drawn: Floats) -> Floats:
        """Return drawn plain numbers of the model's column i. If the column determines others, every number is one that
        training rows had: a rule says nothing about other numbers, so a sample could contradict it.
        """
        rule = self._determinants.get(i)
        return drawn if rule is None else rule.nearest_key(drawn)

    # --- JSON ---

    def to_json(self) -> dict[str, Any]:
        given = {column.name: self.cells[column.name].to_json() for column in self.schema.context}
        known = self.independent.to_json()
        rules = [rule.to_json() for rule in self.rules]
        return {"order": self.order, **known, "cells": {**known["cells"], **given}, "rules": rules}

    @classmethod
    def from_json(cls, schema: Schema, value: Any) -> CellEncoder:
        """Return the encoder that :meth:`to_json` wrote. Raises TableError for anything invalid."""
        if not isinstance(value, dict) or not isinstance(value.get("cells"), dict):
            raise TableError("the model's columns should be an object with order, cells, shares and rules")
        order, rules = value.get("order"), value.get("rules")
        if not isinstance(order, list) or not all(isinstance(name, str) for name in order):
            raise TableError("the order of columns should be a list of names")
        if not isinstance(rules, list):
            raise TableError("rules should be a list")
        independent = IndependentColumns.from_json(value, schema.model)
        given = {column.name: Cells.from_json(value["cells"].get(column.name)) for column in schema.context}
        for column in schema.context:
            given[column.name].check(column)
        return cls(schema, independent, given, order, [Rule.from_json(rule, order) for rule in rules])
