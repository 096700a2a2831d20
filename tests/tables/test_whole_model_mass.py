"""Masses F(b) - F(a) of a model with float32 weights, from a table's value to its probability. The reference is the
same model in float64, with rational arithmetic for the difference."""

from __future__ import annotations

import math
from copy import deepcopy

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
import torch.nn.functional as F

from cubicflow.tables.laws.cells import CELL, INTERVAL
from cubicflow.tables.model.cell_encoder import CellEncoder
from cubicflow.tables.model.columns import ModelOfColumns, suited_columns_model
from cubicflow.tables.model.network import ColumnsModel
from cubicflow.tables.read.table import in_memory
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.inference import TableOptions, infer
from cubicflow.tables.schema.plain_rows import Numbers, PlainRows
from cubicflow.tables.schema.split import Undivided
from cubicflow.tables.table_rows import TableRows
from cubicflow.training import fit

from .test_interval_mass import BINS, exact_mass

LEAST = 1e-12  # smallest mass that is compared
MOST_ERROR = 1e-6  # relative error


def frame() -> pd.DataFrame:
    """Return a word, a count with gaps, and prices with a long tail. All of these columns have masses."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 4, 600)
    made = pd.DataFrame({"kind": [f"kind {k}" for k in kind], "count": rng.poisson(30 + 10 * kind).astype(float)})
    made["price"] = np.round(np.exp(8 + rng.normal(size=600) + 0.3 * kind)).astype(int)
    made["near"] = np.round(rng.normal(size=600), 3)
    made.loc[rng.random(600) < 0.1, "count"] = np.nan
    return made


def learned() -> tuple[CellEncoder, np.ndarray]:
    rows = pa.Table.from_pandas(frame(), preserve_index=False)
    schema = infer(in_memory(rows), TableOptions(missing="model"), Undivided()).schema
    y = plain(schema, frame())
    return CellEncoder.learn(schema, y, None, None), y


def plain(schema: Schema, made: pd.DataFrame) -> np.ndarray:
    (rows,) = pa.Table.from_pandas(made, preserve_index=False).combine_chunks().to_batches()
    return PlainRows(schema).read(rows).y


@pytest.fixture(scope="module", params=["trained", "wild"])
def model(request: pytest.FixtureRequest) -> tuple[ColumnsModel, CellEncoder]:
    encoder, y = learned()
    made = suited_columns_model(encoder, y, 0, {"hidden_features": 16, "num_bins": BINS})
    if request.param == "trained":
        rows = TableRows(encoder, y)
        made = fit(made, rows, rows, steps=150, learning_rate=5e-3, progress=False, device="cpu").flow
    else:  # random weights: bins and slopes of all sizes
        torch.manual_seed(0)
        for parameter in made.parameters():
            parameter.data += 0.25 * torch.randn_like(parameter)
    return made.float().eval(), encoder


SWEPT = {
    "count": np.arange(0.0, 400.0, 7),
    "price": np.round(np.concatenate([np.geomspace(1, 900_000, 40), np.linspace(2000, 5000, 20)])).astype(int),
    "near": np.round(np.linspace(-8, 8, 60), 3),
}


@pytest.mark.parametrize("column", SWEPT)
def test_masses_down_to_1e_12_agree_with_float64(model: tuple[ColumnsModel, CellEncoder], column: str) -> None:
    """The values are in the tails, in steps that are narrow on the unit interval, and in the middle."""
    flow, encoder = model
    values = SWEPT[column]
    rows = pd.concat([frame().dropna()[:1]] * len(values), ignore_index=True).assign(**{column: values})
    y = plain(encoder.schema, rows)
    i = encoder.order.index(column)
    found = ModelOfColumns(encoder, flow).score(Numbers(y, None, None)).terms[:, i]

    double = deepcopy(flow).double()
    cells = torch.from_numpy(encoder.inputs(y))
    own = cells.unflatten(1, (-1, CELL))[:, i]
    with torch.no_grad():
        hidden = double._hidden(double._cells(cells, None))[:, i]
        params = double.splines[i](hidden)
        log_outcome = torch.zeros(len(y), dtype=torch.float64)
        if double.outcomes[i] > 1:
            log_outcome = F.log_softmax(double.logits[i](hidden), dim=1)[:, 0]
    log_left = math.log1p(-encoder.cells[column].unseen)
    log_mass = [exact_log_mass(cell, log_left, each) for cell, each in zip(own, params, strict=True)]
    expected = np.array(log_mass) + log_outcome.numpy()
    assert double.shapes[i] == INTERVAL
    counted = (own[:, 0].numpy() == 0) & (expected > math.log(LEAST))
    masses = np.exp(expected[counted])
    assert counted.sum() > 20
    assert masses.min() < 1e-10
    assert masses.max() > 1e-4
    worst = np.abs(np.expm1(found - expected)[counted]).max()
    assert worst < MOST_ERROR


def exact_log_mass(cell: torch.Tensor, log_left: float, params: torch.Tensor) -> float:
    """Return log (F(b) - F(a)) of a cell's interval, without the share for unseen values. Distances are from the nearer
    end of [0, 1]. From the upper end, the spline's bins and end slopes are in reverse order."""
    _, low, high, log_size = cell.tolist()
    if high < low:
        widths, heights, slopes = params.split([BINS, BINS, 2])
        low, params = high, torch.cat([widths.flip(0), heights.flip(0), slopes.flip(0)])
    return math.log(exact_mass(low, math.exp(log_size - log_left), params)) + log_left
