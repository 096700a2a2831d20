"""Scores of rows that the user uploads: each row's score, its rank among training rows, and its unlikely columns.

For a model of columns, the page shows the log probability of every cell given the cells before it. These values are
exact, and they sum to the score. For a flow, the page shows the log density of every column given all other columns:
log p(row) minus the log of the integral of p over that column, by the trapezoidal rule. This takes hundreds of
densities per cell, so only the least likely rows are explained.
"""

from __future__ import annotations

import csv
import io
import math
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from cubicflow.advice import message_of
from cubicflow.explore.framed import framed
from cubicflow.explore.opened_run import OpenedRun
from cubicflow.explore.threads import raise_if_abandoned
from cubicflow.flows import Flow, Mixture
from cubicflow.tables import FittedTable, Reading, Table, TableError, open_table
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.encoder import Numbers, TableEncoder
from cubicflow.tables.model.network import ColumnsModel
from cubicflow.tables.read.table import in_memory

MOST_BYTES = 16 << 20  # largest upload, in bytes
MOST_ROWS = 20_000  # largest number of rows that are scored
SHOWN_ROWS = 500  # rows whose cells are sent to the page
REFERENCE_ROWS = 2000  # rows that scores are compared with
EXPLAINED_ROWS = 24  # rows of a flow for which columns are explained
POINTS = 257  # grid points for the integral over a column
REAL_LINE_END = 9.0  # integrals over the real line run from -REAL_LINE_END to REAL_LINE_END
PASTED_DELIMITERS = ";|,"  # of a text without tabs; the comma is last, because it may be a decimal comma
ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet", ".feather", ".arrow", ".npy")


def score_rows(run: OpenedRun, content: bytes, name: str, *, pasted: bool = False) -> bytes:
    """Score the rows of an uploaded file or of a pasted text. The rows are kept only in a temporary folder."""
    if run.kind == "images":
        raise TableError("this run is a flow of images, so it has no rows to score; see the view Images")
    ending = Path(name).suffix.lower()
    if not pasted and ending not in ENDINGS:
        raise TableError(f"{name!r} has no known file type; give one of {', '.join(ENDINGS)}")
    with tempfile.TemporaryDirectory(prefix="cubicflow-") as folder:
        path = Path(folder, f"rows{'.csv' if pasted else ending}")
        reading = Reading() if run.fitted is None else run.fitted.reading
        if pasted and run.fitted is not None:
            content, reading = _with_header(run.fitted, content), replace(reading, header="0")
        path.write_bytes(content)
        try:
            return _scored_file(run, path, "the pasted text" if pasted else name, reading)
        except (ValueError, OSError) as error:
            message = message_of(error).replace(str(path), "the pasted text" if pasted else name).replace(folder, "")
            raise TableError(message) from None


def _with_header(fitted: FittedTable, content: bytes) -> bytes:
    """Return a pasted text with a first line of column names; add the line unless the text has one.

    The names are quoted, so that the delimiter is the only mark between them. All other lines stay as they are.
    """
    lines = [*io.StringIO(content.decode("utf-8", errors="replace").lstrip("\ufeff \r\n"), newline="")]
    names = [c.name for c in fitted.schema.columns if c.role not in ("dropped", "weights")]
    marks = "\t" if len(_first_row(lines, "\t")[0]) > 1 else PASTED_DELIMITERS
    tops = {mark: _first_row(lines, mark) for mark in marks}
    named = [mark for mark, (cells, _) in tops.items() if {cell.strip() for cell in cells} & set(names)]
    fitting = [mark for mark, (cells, _) in tops.items() if len(cells) == len(names)]
    if not named and not fitting:
        most = max(len(cells) for cells, _ in tops.values())
        raise TableError(f"a row needs {len(names)} values ({', '.join(names[:8])} ...), but the first line has {most}")
    mark = (named or fitting)[0]
    cells, read = tops[mark] if named else (names, 0)
    header = io.StringIO()
    csv.writer(header, delimiter=mark, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(cells)
    return "".join([header.getvalue(), *lines[read:]]).encode()


def _first_row(lines: Sequence[str], delimiter: str) -> tuple[list[str], int]:
    """Return the cells of the first row of a text, and the number of its lines."""
    rows = csv.reader(lines, delimiter=delimiter)
    try:
        return next(rows, []), rows.line_num
    except csv.Error:  # a cell that is too long
        return [], 0


def _scored_file(run: OpenedRun, path: Path, name: str, reading: Reading) -> bytes:
    if run.fitted is None:
        return _scored_array(run, path)
    fitted = run.fitted
    table = open_table(path, reading)
    fitted.schema.check(table)
    scores: list[float] = []
    for batch in fitted.score_batches(table):
        raise_if_abandoned()
        scores += batch.column(0).to_numpy(zero_copy_only=False).tolist()
        if len(scores) > MOST_ROWS:
            raise TableError(f"{name} has more than {MOST_ROWS:,} rows; score it with: cubicflow score")
    if not scores:
        raise TableError(f"{name} has no rows; give at least one")
    log_p = np.array(scores, np.float64)
    shown_rows = np.argsort(log_p, kind="stable")[:SHOWN_ROWS]  # the least likely first; argsort puts NaN last
    cells, conditionals, ranks = _explained(run, table, shown_rows)
    reference, described = reference_scores(run)
    header = {
        "rows": len(log_p),
        "shown": shown_rows.tolist(),
        "columns": cells[0],
        "cells": cells[1],
        "explained": _explained_names(fitted),
        "reference": described,
        "way": "before" if isinstance(fitted.flow, ColumnsModel) else "rest",
        "ignored": fitted.schema.new_columns(table),
    }
    arrays: dict[str, NDArray[Any]] = {"scores": log_p, "percentiles": percentiles(log_p, reference)}
    if conditionals is not None:
        arrays["conditionals"] = conditionals
    if ranks is not None:
        arrays["ranks"] = ranks
    return framed(header, arrays)


def _explained_names(fitted: FittedTable) -> list[str]:
    return list(fitted.cells.order) if fitted.cells is not None else [c.name for c in fitted.encoder.columns]


def _explained(
    run: OpenedRun, table: Table, chosen: NDArray[np.int64]
) -> tuple[tuple[list[str], list[list[str]]], Floats | None, Floats | None]:
    """Return the cells of the chosen rows as text, their log probabilities, and the percentiles of the log
    probabilities. For a flow, only the first of the chosen rows are explained, which should be the least likely."""
    fitted = run.fitted
    if fitted is None:
        raise TypeError("this run was not fitted to a table, so its rows have no named columns")
    names = [c.name for c in fitted.schema.columns if c.role not in ("dropped", "weights")]
    rows = pa.Table.from_batches(table.batches(names)).take(pa.array(chosen))
    texts = [["" if value is None else str(value) for value in rows.column(name).to_pylist()] for name in names]
    cells = names, [list(row) for row in zip(*texts, strict=True)]
    whole = np.flatnonzero(~_incomplete(rows)) if fitted.missing != "model" else np.arange(len(rows))
    if not len(whole):
        return cells, None, None
    batch = rows.take(pa.array(whole)).combine_chunks().to_batches()[0]
    numbers = fitted.encoder.read(batch)
    found = np.full((len(rows), len(fitted.encoder.columns)), np.nan)
    if isinstance(fitted.flow, ColumnsModel):
        found[whole] = fitted.scored(numbers).terms
        typical = run.once("reference conditionals", lambda: _reference_conditionals(fitted, run))
        return cells, found, np.stack([percentiles(found[:, i], typical[:, i]) for i in range(found.shape[1])], axis=1)
    if fitted.encoder.mass_features or fitted.schema.context or not isinstance(fitted.encoder, TableEncoder):
        return cells, None, None
    some = whole[:EXPLAINED_ROWS]
    x, _ = fitted.encoder.to_flow(numbers.y[:EXPLAINED_ROWS])
    slopes = np.stack([m.forward(numbers.y[:EXPLAINED_ROWS, i])[1] for i, m in enumerate(fitted.encoder.maps)], axis=1)
    found[some] = column_densities(fitted.flow, x, (-REAL_LINE_END, REAL_LINE_END)) + slopes
    return cells, found, None


def _incomplete(rows: pa.Table) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    gaps = [pc.is_null(column, nan_is_null=True).to_numpy() for column in rows.columns]
    found: NDArray[np.bool_] = np.logical_or.reduce(gaps)
    return found


@torch.no_grad()
def column_densities(flow: Flow | Mixture, x: Floats, ends: tuple[float, float]) -> Floats:
    """Return log p(x_i | all other features) for rows (N, D), by the trapezoidal rule between two ends: (N, D).

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(2, num_layers=1, hidden_features=8)
    >>> x = np.array([[0.5, -0.25]])
    >>> bool(np.isfinite(column_densities(flow, x, (-9.0, 9.0))).all())
    True
    """
    dtype = next(flow.parameters()).dtype
    grid = torch.linspace(*ends, POINTS, dtype=dtype)
    rows = torch.from_numpy(x).to(dtype)
    log_p = flow.log_prob(rows)
    found = np.empty(x.shape)
    for i in range(x.shape[1]):
        moved = rows.repeat_interleave(POINTS, 0)
        moved[:, i] = grid.repeat(len(rows))
        values = flow.log_prob(moved, batch_size=1 << 13).reshape(len(rows), POINTS).double()
        weights = torch.full((POINTS,), float(grid[1] - grid[0]), dtype=torch.float64)
        weights[[0, -1]] /= 2
        total = torch.logsumexp(values + weights.log(), dim=1)
        found[:, i] = (log_p.double() - total).numpy()
    return found


def _scored_array(run: OpenedRun, path: Path) -> bytes:
    """Score a file with a flow over vectors. The columns of the file are the features, in order."""
    names = [column.name for column in run.subject.axes]
    reading = Reading()
    if path.suffix in (".csv", ".tsv"):
        first = path.read_text(errors="replace").lstrip().partition("\n")[0]
        try:
            [float(cell) for cell in re.split("[,;\t|]", first)]
            reading = Reading(header="none")
        except ValueError:
            pass
    table = open_table(path, reading)
    if len(table.names) != len(names):
        raise TableError(
            f"this flow has {len(names)} columns, but the file has {len(table.names)}; give a file with {len(names)} "
            "columns"
        )
    batches = list(table.batches())
    try:
        columns = [np.concatenate([_floats(b.column(i)) for b in batches]) for i in range(len(names))]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise TableError("some values of the file are not numbers; remove or replace them") from None
    x = np.stack(columns, axis=1)
    if len(x) > MOST_ROWS or not len(x):
        raise TableError(f"the file has {len(x):,} rows; give 1 to {MOST_ROWS:,}")
    dtype = next(run.model.parameters()).dtype
    with torch.no_grad():
        log_p = run.model.log_prob(torch.from_numpy(x).to(dtype), batch_size=1 << 13).double().numpy()
    order = np.argsort(log_p, kind="stable")[:SHOWN_ROWS]  # the least likely first; argsort puts NaN last
    reference, described = reference_scores(run)
    low, high = _ends(run)
    found = np.full((len(order), len(names)), np.nan)
    found[:EXPLAINED_ROWS] = column_densities(run.model, x[order[:EXPLAINED_ROWS]], (low, high))
    header = {
        "rows": len(x),
        "shown": order.tolist(),
        "columns": names,
        "cells": [[f"{value:.6g}" for value in x[i]] for i in order],
        "explained": names,
        "reference": described,
        "way": "rest",
        "ignored": [],
    }
    arrays = {"scores": log_p, "percentiles": percentiles(log_p, reference), "conditionals": found}
    return framed(header, arrays)


def _floats(array: pa.Array) -> Floats:
    found: Floats = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return found


def _ends(run: OpenedRun) -> tuple[float, float]:
    """Return the ends of the integrals for a flow over vectors."""
    y = run.subject.rows(1 << 12)
    low, high = float(y.min()), float(y.max())
    inside = low >= 0 and high <= 1
    return (0.0, 1.0) if inside else (low - 0.5 * (high - low), high + 0.5 * (high - low))


# --- reference scores ---


def reference_scores(run: OpenedRun) -> tuple[Floats, str]:
    """Return the scores of training rows and the name of these rows. Without data, rows are drawn from the model."""
    return run.once("reference", lambda: _reference(run))


def _reference(run: OpenedRun) -> tuple[Floats, str]:
    data = run.data
    if run.fitted is not None and data is not None and data.rows is not None:
        train = data.rows.filter(pa.array(data.is_train))[:REFERENCE_ROWS]
        if len(train):
            is_text = run.table is not None and run.table.is_text
            rows = in_memory(pa.Table.from_batches([train]), "the training rows", is_text=is_text)
            parts = [batch.column(0).to_numpy(zero_copy_only=False) for batch in run.fitted.score_batches(rows)]
            scores = np.concatenate(parts)
            return scores[np.isfinite(scores)], "training rows"
    if run.fitted is not None:
        from cubicflow.explore.subject import usual_context

        rows = run.fitted.sample(REFERENCE_ROWS, usual_context(run.fitted) or None, seed=1)
        scores = run.fitted.score(rows)
        return scores[np.isfinite(scores)], "rows drawn from the model"
    x = run.subject.rows(REFERENCE_ROWS)
    with torch.no_grad():
        scores = run.model.log_prob(torch.from_numpy(x).to(next(run.model.parameters()).dtype)).double().numpy()
    return scores, "rows drawn from the model"


def _reference_conditionals(fitted: FittedTable, run: OpenedRun) -> Floats:
    """Return the log probability of every cell of the reference rows, given the cells before it.

    The reference rows are training rows, or rows drawn from the model if there is no data. The result has shape (R, D),
    with columns in the model's order.
    """
    data = run.data
    if data is not None and data.rows is not None and data.is_train.any():
        numbers = fitted.encoder.read(data.rows.filter(pa.array(data.is_train))[:REFERENCE_ROWS])
    else:
        from cubicflow.explore.subject import usual_context

        rows = fitted.sample(REFERENCE_ROWS, usual_context(fitted) or None, seed=1)
        numbers = fitted.encoder.read(rows.combine_chunks().to_batches()[0])
    terms = fitted.scored(Numbers(*numbers)).terms
    assert terms is not None  # noqa: S101 - a model of columns has terms
    return terms


def percentiles(values: Floats, reference: Floats) -> Floats:
    """Return the percentage of the reference that lies below each value. Equal reference values count half.

    >>> percentiles(np.array([0.0, 2.5, np.nan]), np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    [0.0, 50.0, nan]
    """
    ordered = np.sort(reference)
    below = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
    return np.where(np.isnan(values), math.nan, 100 * below / max(len(ordered), 1))
