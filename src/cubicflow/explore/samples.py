"""Drawn rows that meet conditions: a few as text for the page, and many as a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import pyarrow as pa

from cubicflow.explore.framed import framed
from cubicflow.explore.opened_run import OpenedRun
from cubicflow.explore.questions import MOST_SEED, Question, conditions_of, whole
from cubicflow.explore.subject import POOL_ROWS, Conditions, Subject
from cubicflow.explore.threads import raise_if_abandoned
from cubicflow.tables.query import Given
from cubicflow.tables.run import CsvStyle, csv_text

MOST_ROWS = 100_000  # largest number of rows of a sample
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
    subject, fitted = run.subject, run.subject.fitted
    if not fitted.model.has_laws and set(conditions) - set(subject.usual):
        batch, note = _meeting(subject, n, conditions)
        return csv_text(iter([batch]), CsvStyle(fitted.decimals(), fitted.reading.notations)), [note]
    given: Given = {**subject.usual, **conditions}
    notes = list[str]()
    batches = _while_awaited(fitted.sample_batches(n, given, 1.0, seed, say=notes.append))
    return csv_text(batches, CsvStyle(fitted.decimals(given), fitted.reading.notations)), notes


def _while_awaited(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        raise_if_abandoned()
        yield batch


def _meeting(subject: Subject, n: int, conditions: Conditions) -> tuple[pa.RecordBatch, str]:
    """Return at most n rows of a flow that meet conditions, and a sentence on the number of such rows."""
    drawn, fitted = subject.drawn(conditions), subject.fitted
    drawn.grow_to(max(n, POOL_ROWS))
    y = drawn.y
    meets = fitted.meets(y, conditions)
    some = y[meets][:n]
    _, given = fitted.encoder.context_from(subject.context_of(conditions), len(some))
    note = f"{int(meets.sum()):,} of {len(meets):,} drawn rows meet the conditions"
    return fitted.encoder.decode(some, given), note
