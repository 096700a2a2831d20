"""Drawn rows that meet conditions: a few as text for the page, and many as a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from cubicflow.explore.framed import framed
from cubicflow.explore.opened_run import OpenedRun
from cubicflow.explore.questions import Question, conditions_of, whole
from cubicflow.explore.subject import ArraySubject, FlowSubject
from cubicflow.explore.threads import raise_if_abandoned
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.query.conditions import Given
from cubicflow.tables.run.output import CsvStyle, csv_text

MOST_ROWS = 100_000  # largest number of rows of a sample
MOST_SEED = 1 << 31
SHOWN_ROWS = 12  # rows on the page


def sample(run: OpenedRun, question: Question) -> bytes:
    """Return the first SHOWN_ROWS rows of a sample as text, and notes."""
    text, notes = sampled(run, question)
    names, *cells = csv.reader(io.StringIO(text.decode()))
    return framed({"columns": names, "cells": cells[:SHOWN_ROWS], "notes": notes})


def sample_csv(run: OpenedRun, question: Question) -> bytes:
    """Return a sample as the file that ``cubicflow sample`` writes."""
    return sampled(run, question)[0]


def sampled(run: OpenedRun, question: Question) -> tuple[bytes, list[str]]:
    """Return drawn rows that meet conditions: the CSV file that ``cubicflow sample`` writes, and notes."""
    conditions = conditions_of(question)
    n, seed = whole(question, "n", MOST_ROWS), whole(question, "seed", MOST_SEED)
    subject, fitted = run.subject, run.fitted
    if isinstance(subject, ArraySubject) or fitted is None:
        found, note = subject.meeting(n, conditions)  # type: ignore[attr-defined] # a run without a table is an array
        return _csv_of(found, [column.name for column in subject.axes]), [note] if conditions else []
    given: Given = {**subject.usual, **conditions}  # type: ignore[attr-defined] # subjects of tables have it
    if isinstance(subject, FlowSubject) and set(conditions) - set(subject.usual):
        batch, note = subject.table_meeting(n, conditions)
        return csv_text(iter([batch]), CsvStyle(fitted.decimals(), fitted.reading.notations)), [note]
    notes = list[str]()
    batches = _while_awaited(fitted.sample_batches(n, given, 1.0, seed, say=notes.append))
    return csv_text(batches, CsvStyle(fitted.decimals(given), fitted.reading.notations)), notes


def _while_awaited(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        raise_if_abandoned()
        yield batch


def _csv_of(y: Floats, names: list[str]) -> bytes:
    # Rows of a float32 flow are written with the digits of float32.
    is_single = bool((y.astype(np.float32) == y).all())
    batch = pa.RecordBatch.from_arrays([pa.array(c.astype(np.float32) if is_single else c) for c in y.T], names=names)
    return csv_text(iter([batch]))
