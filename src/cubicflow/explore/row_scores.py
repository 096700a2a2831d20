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
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.advice import message_of
from cubicflow.explore.framed import framed
from cubicflow.explore.opened_run import OpenedRun
from cubicflow.explore.questions import Question
from cubicflow.explore.threads import raise_if_abandoned
from cubicflow.tables import FittedTable, Reading, Table, TableError, open_table
from cubicflow.tables.read import in_memory
from cubicflow.weights import Floats

MOST_ROWS = 20_000  # largest number of rows that are scored
SHOWN_ROWS = 500  # rows whose cells are sent to the page
EXPLAINED_ROWS = 24  # rows of a flow for which columns are explained
PASTED_DELIMITERS = ";|,"  # of a text without tabs; the comma is last, because it may be a decimal comma
ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet", ".feather", ".arrow", ".npy")


def score_rows(run: OpenedRun, question: Question) -> bytes:
    """Score the rows of an uploaded file or of a pasted text. The rows are kept only in a temporary folder."""
    content, name, pasted = question["content"], question["name"], question["pasted"]
    reading, ending = run.subject.fitted.reading, Path(name).suffix.lower()
    if not pasted and ending not in ENDINGS:
        raise TableError(f"{name!r} has no known file type; give one of {', '.join(ENDINGS)}")
    with tempfile.TemporaryDirectory(prefix="cubicflow-") as folder:
        path = Path(folder, f"rows{'.csv' if pasted else ending}")
        if pasted and run.kind != "array":
            content, reading = _with_header(run.subject.fitted, content), replace(reading, header="0")
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
    fitted = run.subject.fitted
    table = _by_place(path, fitted) if run.kind == "array" else open_table(path, reading)
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
    chosen = np.argsort(log_p, kind="stable")[:SHOWN_ROWS]  # the least likely first; argsort puts NaN last
    names = [c.name for c in fitted.schema.columns if c.role not in ("dropped", "weights")]
    rows = pa.Table.from_batches(table.batches(names)).take(pa.array(chosen))
    texts = [["" if value is None else str(value) for value in column.to_pylist()] for column in rows.columns]
    reference, _, name_of_reference = run.reference
    header = {
        "rows": len(log_p),
        "shown": chosen.tolist(),
        "columns": names,
        "cells": [list(row) for row in zip(*texts, strict=True)],
        "explained": fitted.model.order,
        "reference": name_of_reference,
        "way": "before" if fitted.model.has_laws else "rest",
        "ignored": fitted.schema.new_columns(table),
    }
    arrays = {"scores": log_p, "percentiles": percentiles(log_p, reference), **_explained(run, rows)}
    return framed(header, arrays)


def _by_place(path: Path, fitted: FittedTable) -> Table:
    """Return the table of a file whose columns are the features of a flow of vectors, in order, whatever their names.

    A first line of numbers is a row.
    """
    reading, names = Reading(), [column.name for column in fitted.schema.model]
    if path.suffix in (".csv", ".tsv"):
        first = path.read_text(errors="replace").lstrip().partition("\n")[0]
        with suppress(ValueError):
            [float(cell) for cell in re.split("[,;\t|]", first)]
            reading = Reading(header="none")
    table = open_table(path, reading)
    if len(table.names) != len(names):
        raise TableError(
            f"this flow has {len(names)} columns, but the file has {len(table.names)}; give a file with {len(names)} "
            "columns"
        )
    rows = pa.Table.from_batches(table.batches(table.names)).rename_columns(names)
    return in_memory(rows, path.name, is_text=table.is_text)


def _explained(run: OpenedRun, rows: pa.Table) -> dict[str, Floats]:
    """Return the log probabilities of the cells of rows, and the percentiles of these log probabilities.

    For a flow, only the first rows are explained, which should be the least likely, and there are no percentiles. A
    flow of columns with masses or with context is not explained.
    """
    fitted = run.subject.fitted
    gaps = [pc.is_null(column, nan_is_null=True).to_numpy() for column in rows.columns]
    whole = np.arange(len(rows)) if fitted.missing == "model" else np.flatnonzero(~np.logical_or.reduce(gaps))
    if not len(whole):
        return {}
    found = np.full((len(rows), len(fitted.schema.model)), np.nan)
    whole = whole if fitted.model.has_laws else whole[:EXPLAINED_ROWS]
    if (conditionals := fitted.conditionals(rows.take(pa.array(whole)))) is None:
        return {}
    found[whole] = conditionals
    if not fitted.model.has_laws or (typical := run.reference[1]) is None:
        return {"conditionals": found}
    ranks = [percentiles(found[:, i], typical[:, i]) for i in range(found.shape[1])]
    return {"conditionals": found, "ranks": np.stack(ranks, axis=1)}


def percentiles(values: Floats, reference: Floats) -> Floats:
    """Return the percentage of the reference that lies below each value. Equal reference values count half.

    >>> percentiles(np.array([0.0, 2.5, np.nan]), np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    [0.0, 50.0, nan]
    """
    ordered = np.sort(reference)
    below = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
    return np.where(np.isnan(values), math.nan, 100 * below / max(len(ordered), 1))
