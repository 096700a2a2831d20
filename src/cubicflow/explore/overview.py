"""The data of the first views: columns with their masses, rows of data and model, scores, and the training curve."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cubicflow.explore.framed import framed
from cubicflow.explore.opened_run import BUILT_IN_ROWS, OpenedRun
from cubicflow.explore.questions import Question, conditions_of, whole
from cubicflow.explore.subject import FIRST_ROWS
from cubicflow.flows import bits_per_dim
from cubicflow.tables import Column
from cubicflow.tables.judging import read_judgement
from cubicflow.tables.query import Axis
from cubicflow.tables.run import Score, score_some, score_warnings, verdict
from cubicflow.weights import Floats

SCORED_ROWS = 1000  # rows of each part of the table that are scored
UNDRAWN = ("constant", "dropped", "weights")  # roles of columns without a picture
MOST_MENU = 400  # largest number of words in a menu
POINTS = 3000  # points of the data, and points of the model, on the page
PLANE_POINTS = BUILT_IN_ROWS  # points of the data, and points of the model, for a flow of two features
EXACT_GRID = 256  # side of an exact density, in cells
SHOWN_POINTS = 2000  # points of the training curve
LARGEST = 1e30  # larger losses are left out of the training curve
CURVES = (("loss", "training"), ("validation_loss", "validation"), ("validation_loss_averaged", "averaged weights"))


def columns_answer(run: OpenedRun) -> bytes:
    """Return the columns and the masses of their bins under the model."""
    subject, schema = run.subject, run.subject.fitted.schema.columns
    if subject.usual:
        arrays = _pictures(run, subject.rows(FIRST_ROWS))
    else:
        arrays = _joined((column.masses, column.quantiles) for column in subject.answer({}).columns)
    header = {
        "columns": [_described(axis) for axis in subject.axes],
        "given": [{**_described(axis), "usual": str(subject.usual[axis.name])} for axis in subject.given],
        "ofData": subject.like is not None,
        "others": [{"name": c.name, "about": c.describe()} for c in schema if c.role in UNDRAWN],
        "names": [c.name for c in schema if c.role not in ("dropped", "weights")],
    }
    return framed(header, arrays)


def _described(axis: Axis) -> dict[str, Any]:
    """Return the description of a column. A menu has its first MOST_MENU words; the user can type any word."""
    column = axis.column
    return {
        "name": column.name,
        "kind": column.kind,
        "about": column.describe(),
        "isList": axis.is_list,
        "isDate": axis.is_date,
        "isCircle": column.is_circle,
        "hasGaps": axis.has_gaps,
        "isGiven": column.role == "context",
        "decimals": _decimals(column),
        "step": axis.unit if axis.is_whole else None,
        "bins": axis.bins,
        "bars": axis.bars,
        "hasOthers": axis.has_others,
        "menu": axis.labels[:MOST_MENU],
        "words": len(axis.labels),
        "edges": axis.shown(np.asarray(axis.edges)).tolist(),
        "ends": _ends(axis),
    }


def _ends(axis: Axis) -> tuple[float, float]:
    """Return the ends of an axis. A word is in the middle of its unit."""
    low, high = (-0.5, axis.bins - 0.5) if axis.is_list else axis.shown(np.asarray([axis.edges[0], axis.edges[-1]]))
    return float(low), float(high)


def _decimals(column: Column) -> int | None:
    """Return the number of decimals of a column's values; None if it is not known, or for words and dates."""
    step = column.axis_step
    if column.on_calendar or column.decimals is not None or step is None:
        return None if column.on_calendar else column.decimals
    return next((d for d in range(10) if abs(round(step, d) - step) < 1e-12 * max(1.0, abs(step))), 9)


def _pictures(run: OpenedRun, y: Floats) -> dict[str, NDArray[Any]]:
    """Return the masses of all bins, and the quantiles of all columns, of rows (N, D)."""
    return _joined((axis.masses(y[:, i]), axis.quantiles(y[:, i])) for i, axis in enumerate(run.subject.axes))


def _joined(columns: Iterable[tuple[Floats, Floats]]) -> dict[str, NDArray[Any]]:
    masses, quantiles = zip(*columns, strict=True)
    return {"masses": _padded(masses), "quantiles": np.stack(quantiles)}


def _padded(rows: Sequence[Floats]) -> NDArray[np.float32]:
    """Return arrays as the rows of one, with zeros after the shorter ones."""
    found = np.zeros((len(rows), max(map(len, rows))), np.float32)
    for row, values in zip(found, rows, strict=True):
        row[: len(values)] = values
    return found


def data_answer(run: OpenedRun) -> bytes:
    """Return the masses of the bins of :func:`columns_answer` for rows of the data; no masses if there is no data."""
    data = run.data
    if data is None:
        return framed({"rows": 0, "notes": run.about()["notes"]})
    return framed({"rows": len(data.y), "notes": run.about()["notes"]}, _pictures(run, data.y))


def what_if_answer(run: OpenedRun, question: Question) -> bytes:
    """Return the distributions of all columns given conditions."""
    answer = run.subject.answer(conditions_of(question), refine=bool(question.get("refine")))
    header = {
        "probability": _plain(answer.probability),
        "isDensity": answer.is_density,
        "effectiveSize": _plain(answer.effective_size),
    }
    arrays = _joined((column.masses, column.quantiles) for column in answer.columns)
    return framed(header, {**arrays, "errors": _padded([column.errors for column in answer.columns])})


def points_answer(run: OpenedRun) -> bytes:
    """Return the places of rows of the data and of the model on the axes, and the bins of those of the data.

    Without data, the bins are those of the model's rows.
    """
    subject, generator = run.subject, np.random.default_rng(0)
    most = PLANE_POINTS if run.is_plane else POINTS
    rows = {"model": subject.rows(most)} | ({} if run.data is None else {"data": run.data.y[:most]})
    arrays: dict[str, NDArray[Any]] = {
        name: np.stack([_places(axis, y[:, i], generator) for i, axis in enumerate(subject.axes)], axis=1)
        for name, y in rows.items()
    }
    bins = [axis.bin_of(rows.get("data", rows["model"])[:, i]) for i, axis in enumerate(subject.axes)]
    return framed({"notes": run.about()["notes"]}, {**arrays, "bins": np.stack(bins, axis=1).astype(np.int32)})


def _places(axis: Axis, y: Floats, generator: np.random.Generator) -> NDArray[np.float32]:
    """Return the places of plain numbers on an axis from 0 to 1.

    Words and whole numbers are spread around their place, so that rows do not hide others.
    """
    low, high = _ends(axis)
    spread = 0.7 if axis.is_list else 0.6 * axis.unit if axis.is_whole else 0.0
    places = axis.positions(y) + spread * generator.uniform(-0.5, 0.5, len(y))
    return ((places - low) / (high - low)).astype(np.float32)


@torch.no_grad()
def density_answer(run: OpenedRun, question: Question) -> bytes:
    """Return the model's density over two columns.

    The density is exact for a flow of two features. Otherwise it is the share of drawn rows in each cell of a grid.
    """
    axes = run.subject.axes
    x, y = (whole(question, name, len(axes) - 1) for name in "xy")
    across, up = axes[x], axes[y]
    if run.is_plane and x != y:
        edges = [np.linspace(c.edges[0], c.edges[-1], EXACT_GRID + 1) for c in (across, up)]
        middles = [(each[1:] + each[:-1]) / 2 for each in edges]
        grid = np.stack(np.meshgrid(*middles, indexing="xy"), axis=-1).reshape(-1, 2)
        order = [0, 1] if x < y else [1, 0]
        points = torch.from_numpy(np.ascontiguousarray(grid[:, order])).to(next(run.model.parameters()).dtype)
        density = run.model.log_prob(points, batch_size=1 << 14).exp().float().numpy()
        return framed({"isExact": True}, {"density": density.reshape(EXACT_GRID, EXACT_GRID)})
    rows = run.subject.many_rows()
    (first, wide), (second, tall) = ((axis.bin_of(rows[:, i]), axis.bins) for axis, i in ((across, x), (up, y)))
    inside = (first >= 0) & (first < wide) & (second >= 0) & (second < tall)
    counts = np.bincount(second[inside] * wide + first[inside], minlength=wide * tall).reshape(tall, wide)
    return framed({"isExact": False}, {"density": (counts / len(rows)).astype(np.float32)})


def training_answer(run: OpenedRun) -> bytes:
    """Return the losses by step."""
    arrays: dict[str, NDArray[Any]] = {}
    for key, _name in CURVES:
        pairs = [(line["step"], line[key]) for line in run.history if _is_usable(line.get(key))]
        thin = pairs[:: max(1, len(pairs) // SHOWN_POINTS)]
        if thin:
            arrays[f"{key}_steps"] = np.array([step for step, _ in thin], np.float64)
            arrays[key] = np.array([loss for _, loss in thin], np.float64)
    return framed({"curves": [[key, name] for key, name in CURVES if key in arrays]}, arrays)


def score_answer(run: OpenedRun) -> bytes:
    """Return the quality of the fit: scores of the table's parts and of independent columns, warnings, judgement."""
    header: dict[str, Any] = {"verdict": None, "facts": [], "warnings": [], "judgement": None}
    judged = read_judgement(run.path)
    if judged is not None:
        header["judgement"] = {"verdict": judged.verdict, "lines": judged.lines}
    result = run.config.get("result")
    loss = result.get("validation_loss") if isinstance(result, dict) else None
    if run.fitted is not None and run.table is not None:
        scored = score_some(run.fitted, run.table, SCORED_ROWS)
        test, train = scored.parts["test"], scored.parts["train"]
        header |= {
            "verdict": verdict(test, train),
            "warnings": score_warnings(test, train),
            "facts": _facts(test, train) if test.model.weight else [],
        }
    elif run.kind == "images" and _is_usable(loss):
        pixels = math.prod(run.model.shape)
        bits = float(bits_per_dim(torch.tensor(-float(loss)), pixels))  # type: ignore[arg-type] # a number, by _is_usable
        header["verdict"] = f"Held-out images take {bits:.3f} bits per pixel value."
    elif run.kind == "array" and _is_usable(loss):
        header["verdict"] = f"Held-out rows score {-float(loss):.3f} nats."  # type: ignore[arg-type] # a number, by _is_usable
    return framed(header)


def _facts(test: Score, train: Score) -> list[tuple[str, float | None, float | None]]:
    """Return the names, means and errors of the scores that the page shows."""
    means = {
        "test rows, by the model": test.model,
        "test rows, by independent columns": test.independent,
        "gain per row": test.gain,
        "training rows, by the model": train.model if train.model.weight else None,
    }
    return [(text, _plain(mean.mean), _plain(mean.error)) for text, mean in means.items() if mean is not None]


def _is_usable(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def _plain(value: float) -> float | None:
    """Return a number for JSON; None if it is not finite."""
    return float(value) if math.isfinite(value) else None
