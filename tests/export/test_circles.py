"""The exported sampler of a table with circles draws from the distributions that its scores describe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cubicflow.export import export_model
from cubicflow.export.graphs import graph_of
from cubicflow.tables import FittedTable
from cubicflow.tables.laws.masses import unit_spline
from cubicflow.tables.model.network import ColumnsModel

from .runtimes import runtime


def next_cells(fitted: FittedTable, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return cells of drawn rows, noise, and the outcomes and places that the exported module draws from them."""
    encoder, model = fitted.model.laws().encoder, fitted.flow
    drawn = fitted.sample(rows, seed=0)
    cells = torch.from_numpy(encoder.inputs(encoder.read(drawn.combine_chunks().to_batches()[0]).y))
    noise = torch.rand(rows, 2 * len(model.outcomes), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        return cells, noise, *graph_of(model, sampler=True, precision="float64").module(cells, noise)


def test_places_have_the_mass_of_the_noise(of_circles: FittedTable) -> None:
    """The mean density of [0, place] under the model's score, times the place, is the uniform number."""
    cells, noise, _, places = next_cells(of_circles, 50)
    model, columns = of_circles.flow, len(of_circles.flow.outcomes)
    assert len(model.circles) == 4
    for i in range(columns):
        if not model.shapes[i]:
            continue
        with torch.no_grad():
            _, params = model.begin(cells.unflatten(1, (-1, 4))[:, :i]).next_column()
        values = unit_spline(places[:, i], params, closed=i in model.circles)[0]
        np.testing.assert_allclose(values, noise[:, 2 * i + 1], rtol=0, atol=1e-12)


@pytest.mark.soak  # the conversion to ONNX takes most of a minute; the exported module itself is in the suite
def test_a_sampler_of_circles_runs_in_onnxruntime(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = ColumnsModel([1, 1], [2, 1], circles=[0, 1], hidden_features=8, num_blocks=1, num_bins=3).double()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    export_model(model, tmp_path / "model.onnx", sampler=True, precision="float64")
    low, width, rows = torch.rand(2, 100, dtype=torch.float64) * 0.99, 0.01, 100
    log_size = torch.full((rows,), float(np.log(width)), dtype=torch.float64)
    zeros = torch.zeros(rows, dtype=torch.float64)
    cells = torch.stack([zeros, low[0], 1 - low[0], zeros, zeros, low[1], 1 - low[1] - width, log_size], dim=1)
    noise = torch.rand(rows, 4, dtype=torch.float64)
    with torch.no_grad():
        expected = graph_of(model.eval(), sampler=True, precision="float64").module(cells, noise)
    found = runtime(tmp_path / "model.onnx")({"cells": cells.numpy(), "noise": noise.numpy()})
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
