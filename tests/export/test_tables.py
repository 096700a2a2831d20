"""A service with the graph, its JSON and onnxruntime scores raw rows of a mixed table as cubicflow does."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy import stats

from cubicflow.export import export_model
from cubicflow.tables import FittedTable, fit_table
from cubicflow.tables.query.sample import draw_rows

from .raw_rows import Service, raw
from .runtimes import ROWS, check_distribution, check_float32, eager_error, runtime

SMALL: dict[str, Any] = {"num_bins": 4, "hidden_features": 16, "token_features": 8, "num_blocks": 1}


def mixed_table(rows: int, seed: int = 0) -> pa.Table:
    """Return words, one of them rare, a column that the words determine, steps, dates, and a real number with gaps."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["oak", "elm", "ash", "yew"], rows, p=[0.5, 0.3, 0.19, 0.01])
    rings = rng.poisson(4, rows) + 3 * (kind == "oak")
    height = rings + rng.gamma(2.0, 1.0, rows)
    planted = np.datetime64("2020-01-01") + rng.integers(0, 60, rows)
    return pa.table(
        {
            "kind": kind,
            "soft": np.where(kind == "oak", "no", "yes"),
            "rings": rings,
            "planted": pa.array(planted.astype("datetime64[D]")),
            "height": pa.array(np.where(rng.random(rows) < 0.1, np.nan, height), from_pandas=True),
        }
    )


def fitted_run(folder: Path, table: pa.Table, **settings: Any) -> Path:
    pq.write_table(table, folder / "table.parquet")
    fit_table(folder / "table.parquet", folder / "run", steps=60, seed=0, progress=False, **settings)
    return folder / "run"


def is_near(value: Any, expected: Any) -> bool:
    """Return whether two words are equal, or two numbers agree to 1e-4."""
    if isinstance(expected, str):
        return bool(value == expected)
    return bool(np.isclose(value, expected, rtol=1e-4, atol=1e-4))


@torch.no_grad()
def columns_error(fitted: FittedTable, table: pa.Table) -> np.ndarray:
    """Return the error of eager float32 for each row of a model of columns: from rounded cells and from the model
    itself.
    """
    encoder, numbers = (
        fitted.model.laws().encoder,
        fitted.model.laws().encoder.read(table.combine_chunks().to_batches()[0]),
    )
    cells = torch.from_numpy(encoder.inputs(numbers.y))
    single, double = deepcopy(fitted.flow).float(), deepcopy(fitted.flow).double()

    def ruled(model: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        def score(cells: torch.Tensor) -> torch.Tensor:
            conditionals = model.conditionals(cells).double().numpy()
            return torch.from_numpy(encoder.log_ruled(conditionals, numbers.y).sum(1))

        return score

    numbers_of_cells = [i for i in range(cells.shape[1]) if i % 4]  # all numbers of cells except outcomes
    rounded = ruled(double)(cells.float().double()) - ruled(double)(cells)
    return rounded.abs().numpy() + eager_error(ruled(single), ruled(double), cells.float(), nudged=numbers_of_cells)


@pytest.fixture(scope="module")
def mixed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted_run(tmp_path_factory.mktemp("mixed"), new_rows(400, seed=0), model="columns", settings=SMALL)


def new_rows(number: int, seed: int) -> pa.Table:
    return mixed_table(number, seed).select(["kind", "soft", "rings", "height"])


def with_unseen_values(table: pa.Table) -> pa.Table:
    """Replace the last row by values that no training row has."""
    unseen = pa.table({"kind": ["fir"], "soft": ["no"], "rings": [900], "height": [-5.0]})
    return pa.concat_tables([table.slice(0, len(table) - 1), unseen.cast(table.schema)])


def test_raw_rows_of_a_mixed_table(mixed_run: Path, tmp_path: Path) -> None:
    path, encoding = export_model(mixed_run, tmp_path / "model.onnx", precision="float64")
    assert encoding == tmp_path / "model.json"
    service, fitted = Service(encoding, runtime(path)), FittedTable.load(mixed_run)
    assert service.about["rules"]  # the column kind determines the column soft
    for number in ROWS:
        rows = with_unseen_values(new_rows(number, seed=number))
        # Both programs use float64. Their cells and networks differ by rounding errors, which a steep spline amplifies.
        np.testing.assert_allclose(service.score(raw(rows)), fitted.score(rows), rtol=1e-9, atol=1e-9)


@pytest.mark.soak  # the float32 graph of a flow is in the suite, and so is the float64 graph of a table
def test_raw_rows_in_float32(mixed_run: Path, tmp_path: Path) -> None:
    path, encoding = export_model(mixed_run, tmp_path / "model.onnx")
    service, fitted = Service(encoding, runtime(path)), FittedTable.load(mixed_run)
    for number in ROWS:
        rows = with_unseen_values(new_rows(number, seed=number))
        check_float32(service.score(raw(rows)), fitted.score(rows), columns_error(fitted, rows))
    numbers = fitted.model.laws().encoder.read(rows.combine_chunks().to_batches()[0])
    cells = torch.from_numpy(fitted.model.laws().encoder.inputs(numbers.y)).float()
    with torch.no_grad():
        eager = deepcopy(fitted.flow).float().conditionals(cells).sum(1).numpy()
        terms = deepcopy(fitted.flow).double().conditionals(cells.double()).numpy()
    check_distribution(service.graph({"cells": cells.numpy()})[0], eager, terms.sum(1), np.abs(terms).sum(1))


@pytest.mark.soak
def test_samples_of_a_mixed_table(tmp_path: Path) -> None:
    """The rows of the service have the distribution of cubicflow's: each column, also among the rows of a word."""
    table = mixed_table(600)
    run = fitted_run(tmp_path, table, model="columns", settings=SMALL)
    path, encoding = export_model(run, tmp_path / "sampler.onnx", sampler=True)
    service, fitted = Service(encoding, runtime(path)), FittedTable.load(run)
    number, names = 4000, [column.name for column in fitted.schema.model]
    random = np.random.default_rng(7)
    noise, draws = random.random((number, 2 * len(names))), random.random((number, len(names)))
    found = service.drawn(noise.astype(np.float32), draws)
    expected = dict(zip(names, draw_rows(fitted.model, number, None, torch.Generator().manual_seed(7)).T, strict=True))
    for name in names:
        for word in (None, 0.0, 1.0):
            one, other = (
                rows[name] if word is None else rows[name][rows["kind"] == word] for rows in (found, expected)
            )
            one, other = (np.where(np.isnan(values), 1e9, values) for values in (one, other))
            assert stats.ks_2samp(one, other).pvalue > 1e-5, (name, word)


@pytest.mark.soak
@pytest.mark.parametrize("context", [(), ("soft", "rings")])
def test_a_flow_on_a_table(tmp_path: Path, context: tuple[str, ...]) -> None:
    from cubicflow.tables import TableOptions

    table = mixed_table(600)
    table = table.filter(table.column("height").is_valid())
    words = [name for name in ("kind", "soft") if name not in context]
    options = TableOptions(context=context, drop=words)
    run = fitted_run(tmp_path, table, model="flow", options=options, settings={"num_layers": 1, "hidden_features": 16})
    path, encoding = export_model(run, tmp_path / "model.onnx")
    service, fitted = Service(encoding, runtime(path)), FittedTable.load(run)
    new = table.slice(0, 300)
    double = FittedTable.load(run)
    double.flow.double()
    exact = double.score(new)
    # Each score is a mean over 16 offsets, so one evaluation estimates the error reliably.
    check_float32(service.score(raw(new)), exact, np.abs(fitted.score(new) - exact).max())
    if context:
        return
    path, encoding = export_model(run, tmp_path / "sampler.onnx", sampler=True)
    service = Service(encoding, runtime(path))
    noise = torch.randn(500, service.about["inputs"]["noise"][1], generator=torch.Generator().manual_seed(0))
    x = service.graph({"noise": noise.numpy()})[0]
    with torch.no_grad():
        y = fitted.encoder.numbers(fitted.flow.from_noise(noise)[0].numpy())
    expected = raw(pa.Table.from_batches([fitted.encoder.decode(y)]))
    found = service.decoded(x)
    same = [all(is_near(row[name], expected[name][i]) for name in row) for i, row in enumerate(found)]
    assert np.mean(same) > 0.99  # a step may round to its neighbour
