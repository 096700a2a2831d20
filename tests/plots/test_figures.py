"""Figures from arrays: the drawn values equal the given values."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.helpers.made_up_layer import linear_flow

import cubicflow as cf
from cubicflow.plots.learned_splines import learned_splines, spline_curves
from cubicflow.plots.marginals import Panel, corner, make_panel, marginals, most_correlated
from cubicflow.plots.training_curve import training_curve
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.kinds.facts import Grid
from cubicflow.tables.kinds.gridded import Gridded
from cubicflow.tables.kinds.listed import Listed
from cubicflow.tables.schema.plain_rows import plain_numbers

RNG = np.random.default_rng(0)


def panel(name: str, values: np.ndarray | None = None) -> Panel:
    data = RNG.standard_normal(300) if values is None else values
    return Panel(name, data, RNG.standard_normal(200), np.linspace(-3, 3, 21))


def panel_of(column: Column, data: pa.Array, samples: pa.Array) -> Panel:
    return make_panel(column, plain_numbers(column, data), plain_numbers(column, samples))


def test_the_training_curve_shows_every_series() -> None:
    history = [
        {"step": i, "loss": 5 / i, "validation_loss": 6 / i, "validation_loss_averaged": 7 / i} for i in range(1, 50)
    ]
    (axes,) = training_curve(history).axes
    assert [line.get_label() for line in axes.lines] == ["training", "validation", "validation, averaged weights"]
    np.testing.assert_allclose(axes.lines[1].get_ydata(), [6 / i for i in range(1, 50)])
    assert training_curve([]).axes  # a run without metrics has an empty figure
    assert training_curve([{"step": 1, "loss": 2.0}]).axes
    (axes,) = training_curve([{"step": i, "loss": loss} for i, loss in enumerate([np.nan, 3.0, np.inf, 2.0])]).axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [3.0, 2.0])


def test_marginals_draw_shares() -> None:
    one = panel("a")
    figure = marginals([one, panel("b"), panel("c"), panel("d"), panel("e")])
    assert [axes.get_title() for axes in figure.axes[:5]] == list("abcde")
    filled = figure.axes[0].patches[0].get_data().values
    np.testing.assert_allclose(filled, np.histogram(one.data, one.edges)[0] / 300)


@pytest.mark.parametrize("columns", [2, 8])
def test_corners_have_data_below_and_samples_above(columns: int) -> None:
    panels = [panel(f"c{i}") for i in range(columns)]
    figure = corner(panels)
    assert len(figure.axes) == columns**2
    below, above = figure.axes[columns], figure.axes[1]
    assert below.collections[0].get_cmap().name == "Blues"
    assert above.collections[0].get_cmap().name == "Oranges"
    counts = np.histogram2d(panels[0].data, panels[1].data, bins=(panels[0].edges, panels[1].edges))[0]
    np.testing.assert_allclose(np.asarray(below.collections[0].get_array()).reshape(20, 20), np.sqrt(counts.T))


def test_the_most_dependent_columns_are_chosen() -> None:
    shared = RNG.standard_normal(300)
    panels = [panel(f"c{i}", shared + 0.1 * RNG.standard_normal(300) if i % 3 == 0 else None) for i in range(12)]
    chosen = [found.name for found in most_correlated(panels, 4)]
    assert chosen == ["c0", "c3", "c6", "c9"]


def test_bins_follow_the_steps_of_a_column() -> None:
    """Every bin holds the same whole number of steps. Otherwise empty and double bins would alternate."""
    column = Gridded("price", "int64", grid=Grid(0, 1, 0, 100), kind="integer")
    values = pa.array(np.arange(1000) % 100)
    found = panel_of(column, values, values)
    counts = np.histogram(found.data, found.edges)[0][:-1]
    assert counts.min() == counts.max()
    dates = pa.array([dt.date(2024, 1, 1 + i % 30) for i in range(60)])
    days = panel_of(Gridded("day", "date32[day]", grid=Grid(19723, 1, 0, 30), kind="datetime"), dates, dates)
    assert days.is_date
    assert days.data[0] == 19723
    words = pa.array(["b", "a", "b"])
    levels = panel_of(Listed("word", "string", levels=("a", "b")), words, words)
    assert levels.data.tolist() == [1, 0, 1]
    assert levels.labels == ("a", "b")


def test_drawn_splines_are_those_of_the_layer() -> None:
    """Every curve is the layer's map of one feature of one row."""
    torch.manual_seed(0)
    flow = cf.flows.tabular(3, num_layers=2, hidden_features=8, identity_start=False).eval()
    x = torch.randn(20, 3)
    curves = spline_curves(flow, x, None)
    assert [found.title.split(",")[0] for found in curves] == ["layer 1", "layer 2"]
    linear, layer = flow.transform.transforms[0], flow.transform.transforms[1]
    feature = int(curves[0].title.split()[-1]) - 1
    row = linear(x)[0][4:5].clone()
    row[0, feature] = float(curves[0].x[137])
    with torch.no_grad():
        assert float(layer(row)[0][0, feature]) == pytest.approx(curves[0].y[4, 137], abs=1e-5)
    assert all((np.diff(found.y, axis=1) > 0).all() for found in curves)
    assert len(learned_splines(curves).axes) == 2


def test_the_rare_of_many_words_are_drawn_together() -> None:
    words = tuple(f"w{i}" for i in range(30))
    rows = pa.array([word for i, word in enumerate(words) for _ in range(1 + 3 * (i % 4))])
    column = Listed("word", "string", levels=words)
    drawn = panel_of(column, rows, rows.slice(0, 50))
    often = [word for i, word in enumerate(words) if i % 4 == 3]  # with ten rows each; other words have fewer
    assert len(drawn.labels) == 12
    assert set(often) < set(drawn.labels)
    assert drawn.labels[-1] == "19 others"
    shares = np.histogram(drawn.data, drawn.edges)[0]
    shown = [rows.to_pylist().count(word) for word in drawn.labels[:-1]]
    assert shares.tolist() == [*shown, len(rows) - sum(shown)]
    assert np.histogram(drawn.samples, drawn.edges)[0].sum() == 50


def test_a_linear_layer_from_elsewhere_has_no_spline() -> None:
    flow, x = linear_flow(), torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert len(spline_curves(flow, x, None)) == 1


def test_curves_of_a_flow_with_an_embedding() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
    flow = cf.flows.tabular(2, num_layers=2, context_features=2, context_shape=(1, 4, 4), embedding_net=network)
    assert len(spline_curves(flow, torch.randn(40, 2), torch.rand(40, 1, 4, 4))) == 2
