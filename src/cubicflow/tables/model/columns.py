"""A model of columns of a table: its fit, and the log probability of rows, in the data's own units."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cubicflow.nets.rng import seeded
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.laws.cells import CELL, NumberCells
from cubicflow.tables.model.cell_encoder import CellEncoder
from cubicflow.tables.model.cores import GROUP
from cubicflow.tables.model.network import ColumnsModel
from cubicflow.tables.model.rules import described_rules
from cubicflow.tables.model.table_model import Scored, TableModel, checked_scores
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.plain_rows import Numbers, PlainRows
from cubicflow.tables.table_error import TableError

if TYPE_CHECKING:
    from cubicflow.tables.schema.inference import Inferred

ROWS_AT_ONCE = 1 << 10  # rows scored at once; the activations of more rows do not fit into the caches of a CPU
CELLS_AT_ONCE = 1 << 16  # a cell of a number needs a few kilobytes for its spline
EPOCHS = 30  # default number of epochs


class ModelOfColumns(TableModel):
    """The distribution of each column given the columns before it."""

    name, phrase = "columns", "a model of columns"
    takes_gaps, takes_temperature, has_laws = True, False, True

    encoder: CellEncoder
    network: ColumnsModel

    def __init__(self, encoder: CellEncoder, network: ColumnsModel) -> None:
        super().__init__(encoder, network)
        self.order, self.cells, self.notes = encoder.order, encoder.cells, described_rules(encoder.rules)
        if any(getattr(network, name, None) != value for name, value in encoder.model_arguments.items()):
            raise TableError("the model does not match the columns of the table; restore the file, or fit again")

    def laws(self) -> ModelOfColumns:
        return self

    @classmethod
    def check(cls, found: Inferred) -> None:
        """A model of columns can be fitted to every table."""

    @classmethod
    def learn(
        cls, schema: Schema, numbers: Floats, train: NDArray[np.int64], seed: int, settings: Mapping[str, Any]
    ) -> Self:
        rows = PlainRows(schema).split(numbers[train])
        encoder = CellEncoder.learn(schema, *rows)
        return cls(encoder, suited_columns_model(encoder, rows.y, seed, settings))

    @classmethod
    def setting_names(cls) -> set[str]:
        return {*signature(ColumnsModel).parameters}

    @classmethod
    def suited_training(cls, rows: int) -> dict[str, Any]:
        """Return default training settings for this many rows."""
        batch = min(64 if rows < 5_000 else 256, rows)
        return {
            "learning_rate": 1e-3 if rows < 2_000 else 5e-3,
            "beta2": 0.98,
            "weight_decay": 0.01,
            "batch_size": batch,
            "steps": min(max(EPOCHS * (rows // batch), 1_000), 4_500),
        }

    def usual(self, column: Column) -> Floats:
        cells = self.cells[column.name]
        return cells.scale.inverse(np.linspace(0.02, 0.98, 97)) if isinstance(cells, NumberCells) else np.zeros(1)

    def to_json(self) -> dict[str, Any]:
        return {"columns": self.encoder.to_json()}

    def encoding(self) -> dict[str, Any]:
        cells, encoder = self.encoder.to_json()["cells"], self.encoder
        # Rules apply only to columns with probability masses, not to densities.
        rules = [rule for rule in encoder.rules if encoder.cells[rule.dependent].only_masses(rule.values)]
        names = [*encoder.order, *(column.name for column in self.schema.context)]
        return {"cells": {name: cells[name] for name in names}, "rules": [rule.to_json() for rule in rules]}

    @classmethod
    def read_encoder(cls, schema: Schema, section: Mapping[str, Any]) -> CellEncoder:
        return CellEncoder.from_json(schema, section["columns"])

    @torch.no_grad()
    def score(self, numbers: Numbers, *, observed_only: bool = False) -> Scored:
        """Return the scores of rows. Every row is encoded once.

        The network runs in float64, whatever the dtype of its weights. A spline may be steep: float32 params would
        leave a mass only three correct digits. With ``observed_only``, the log p of a value is conditioned on the value
        being present, and a missing value contributes 0.
        """
        encoder, network = self.encoder, in_float64(self.network)
        shape = len(numbers.y), len(encoder.order)
        terms, baseline, unseen = np.empty(shape), np.empty(len(numbers.y)), np.empty(shape, np.bool_)
        at_once = min(max(CELLS_AT_ONCE // terms.shape[1], 1), ROWS_AT_ONCE)
        for start in range(0, len(terms), at_once):
            rows = slice(start, start + at_once)
            cells = encoder.inputs(numbers.y[rows])
            kinds = cells.reshape(len(cells), -1, CELL)[:, :, 0]
            given = None if numbers.context is None else encoder.context_inputs(numbers.context[rows])
            x, context = _to_device(network, cells), None if given is None else _to_device(network, given)
            found = network.conditionals(x, context, encoder.presence if observed_only else None)
            ruled = encoder.log_ruled(found.double().cpu().numpy(), numbers.y[rows])
            is_gap = (kinds == [gap for gap, _ in encoder.presence]) & (kinds >= 0)
            terms[rows] = np.where(is_gap, 0, ruled) if observed_only else ruled
            baseline[rows] = encoder.independent.log_p(cells.reshape(len(cells), -1, CELL))
            unseen[rows] = kinds < 0
        log_p = checked_scores(terms.sum(axis=1))
        return Scored(log_p, terms, baseline if encoder.has_dependence else None, unseen)

    def conditionals(self, numbers: Numbers) -> Floats | None:
        return self.score(numbers).terms


def suited_columns_model(encoder: CellEncoder, y: Floats, seed: int, settings: Mapping[str, Any]) -> ColumnsModel:
    """Return a model of the encoder's columns for training rows of plain numbers (N, D).

    The user's ``settings`` override the defaults for this number of rows.
    """
    columns: dict[str, Any] = {**encoder.model_arguments, "strangers": encoder.strangers(y)}
    columns["grouped"] = len(encoder.order) > GROUP
    with seeded(seed):
        model = ColumnsModel(**{**columns, **suited_columns(len(y)), **settings})
    model.start_from([torch.tensor(encoder.independent.shares[name]) for name in encoder.order])
    return model


def suited_columns(rows: int) -> dict[str, Any]:
    """Return default settings of :class:`ColumnsModel` for this many training rows."""
    few, many = rows < 2_000, rows >= 30_000
    # Fast waves let a network tell single rows apart. With few rows it then memorises them instead of the dependence.
    octaves = 2 if rows < 500 else 3 if few else 7 if many else 4
    return {
        "hidden_features": 32 if few else 64 if rows < 10_000 else 96,
        "num_bins": 8 if few else 16 if rows < 20_000 else 24,
        "octaves": octaves,
        "dropout": 0.0 if many else 0.1 if rows >= 20_000 else 0.2,
        "cell_dropout": 0.02 if many else 0.3 if rows < 10_000 else 0.1,
    }


def in_float64(model: ColumnsModel) -> ColumnsModel:
    """Return the model with float64 weights: the model itself if it has them, else a copy."""
    if model.positions.dtype == torch.float64:
        return model
    copies = {id(each): nn.Parameter(each.detach().double()) for each in model.parameters()}
    return deepcopy(model, copies).double()  # the copies take the place of the weights, which are not copied twice


def _to_device(model: ColumnsModel, cells: Floats) -> Tensor:
    """Return cells in float64, on the model's device."""
    return torch.from_numpy(cells).to(model.positions.device)
