"""The data of the view Layers: learned splines, and points after every layer from data to noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cubicflow.data.plane import even_points
from cubicflow.explore.framed import framed
from cubicflow.explore.opened_run import OpenedRun
from cubicflow.explore.subject import Subject, spelled
from cubicflow.flows import Mixture
from cubicflow.plots.learned_splines import POINTS, ROWS, Curves, layers_of, most_bent
from cubicflow.tables.query import Pool
from cubicflow.tables.read import BUILT_IN
from cubicflow.weights import Floats

PATH_POINTS = 200_000  # points sent through the layers of a flow of two features
MOST_LAYERS = 16  # layers whose splines are drawn
MOST_FEATURES = 12  # features of a layer whose splines are compared
AT_ONCE = 1 << 14  # rows in one pass
LINES = 9  # straight lines across the data in each direction, which the layers bend
LINE_POINTS = 129  # points of a straight line
OUTERMOST = 0.001  # fraction of the rows beyond the outermost lines
BEYOND = 0.002  # fraction of the points beyond the picture, on either side
MARGIN = 0.05  # of the picture around all other points


def layers_answer(run: OpenedRun) -> bytes:
    """Return the splines of the layers, and the positions of points after every layer."""
    return _conditional_splines(run.subject) if run.kind == "columns" else _flow_answer(run)


@torch.no_grad()
def _conditional_splines(subject: Subject) -> bytes:
    """Return, for a model of columns, the distribution function of each number given earlier cells, for a few rows."""
    pool, order = subject.drawn(), subject.fitted.model.order
    assert isinstance(pool, Pool)  # noqa: S101 - of a model of columns
    u = torch.linspace(0, 1, POINTS, dtype=torch.float64)
    layers, curves = [], []
    for i, name in enumerate(order):
        law = pool.law(i, slice(ROWS))
        if law.params is None:
            continue
        layers.append({"name": name, "feature": None})
        curves.append(law.distribution(u).float().numpy())
    header = {"kind": "columns", "layers": layers, "order": order, "context": spelled(subject.usual)}
    arrays = {"x": u.float().numpy()}
    if curves:
        arrays["y"] = np.stack(curves)
    return framed(header, arrays)


@torch.no_grad()
def _flow_answer(run: OpenedRun) -> bytes:
    flow = run.model.flows[0] if isinstance(run.model, Mixture) else run.model
    if flow.context_features:
        return framed({"kind": "context"})
    rows = _flow_inputs(run)
    dtype = next(flow.parameters()).dtype
    x = torch.from_numpy(rows).to(dtype)
    lines = torch.from_numpy(_lines(rows)).to(dtype) if rows.shape[1] == 2 else None
    bent = [] if lines is None else [lines]
    steps, states, curves = ["data"], [x], list[Curves]()
    layers: list[dict[str, Any]] = []
    for layer in layers_of(flow.transform):
        if not layer.affine and len(layers) < MOST_LAYERS:
            curves.append(most_bent(layer, x, features=MOST_FEATURES))
            name = f"layer {len(steps)}, {type(layer).__name__.lower()}"
            layers.append({"name": name, "feature": curves[-1].feature})
        x = torch.cat([layer(part)[0] for part in x.split(AT_ONCE)])
        states.append(x)
        if bent:
            bent.append(layer(bent[-1])[0])
        steps.append(type(layer).__name__.lower())
    steps[-1] = f"{steps[-1]}: noise"
    header = {"kind": "flow", "layers": layers, "steps": steps, "names": [c.name for c in run.subject.axes]}
    path = torch.stack(states).float().numpy()  # (steps, N, D)
    low, high = _ends(path)
    arrays = {"path": (path - low) / (high - low), "below": _shares_below(path[0])}
    if bent:
        places = (torch.stack(bent).float().numpy() - low) / (high - low)
        arrays["lines"] = places.reshape(len(bent), 2 * LINES, LINE_POINTS, 2)
    if curves:
        arrays |= {name: np.stack([getattr(each, name) for each in curves]).astype(np.float32) for name in ("x", "y")}
    return framed(header, arrays)


def _flow_inputs(run: OpenedRun) -> Floats:
    """Return rows as inputs of the flow: rows of the data, or drawn rows if there is no data."""
    features = len(run.subject.axes)
    if (name := run.built_in) is not None:
        return even_points(BUILT_IN[name](), PATH_POINTS)
    most = PATH_POINTS if features == 2 else 3000
    y = run.subject.rows(most) if run.data is None else run.data.y[:most]
    encoder = run.subject.fitted.encoder
    y = y[np.isfinite(y).all(axis=1)]
    generator = np.random.default_rng(0)
    return encoder.inputs(y, encoder.noise(len(y), generator))


def _ends(path: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the ends of the axes of points (steps, N, D) after every layer, (steps, 1, D) each."""
    inside = (path.min(1, keepdims=True) >= 0) & (path.max(1, keepdims=True) <= 1)
    low, high = np.quantile(path, [BEYOND, 1 - BEYOND], axis=1, keepdims=True)
    margin = np.where(high > low, MARGIN * (high - low), 1.0)
    ends = np.where(inside, 0.0, low - margin), np.where(inside, 1.0, high + margin)
    return ends[0].astype(np.float32), ends[1].astype(np.float32)


def _shares_below(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the share of rows (N, D) below each value, from which the page chooses colours that differ in crowds."""
    shares = [np.searchsorted(np.sort(values), values) / len(values) for values in rows.T]
    return np.stack(shares, axis=1).astype(np.float32)


def _lines(rows: Floats) -> Floats:
    """Return the points of straight lines over rows (N, 2), upright lines first: (2 * LINES * LINE_POINTS, 2)."""
    inside = rows.min() >= 0 and rows.max() <= 1
    low, high = (np.zeros(2), np.ones(2)) if inside else np.quantile(rows, [OUTERMOST, 1 - OUTERMOST], axis=0)
    places, along = (low + (high - low) * np.linspace(0, 1, n)[:, None] for n in (LINES, LINE_POINTS))
    upright = np.stack(np.broadcast_arrays(places[:, None, 0], along[None, :, 1]), axis=-1)  # (LINES, LINE_POINTS, 2)
    level = np.stack(np.broadcast_arrays(along[None, :, 0], places[:, None, 1]), axis=-1)
    found: Floats = np.concatenate([upright, level]).reshape(-1, 2)
    return found
