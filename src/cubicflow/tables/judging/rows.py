"""The rows to judge: the rows of two files, or the rows of a file and as many samples of a run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.tables.arrow_types import family, read_text
from cubicflow.tables.fitted import FittedTable
from cubicflow.tables.judging.judgement import Judgement, judge_matched
from cubicflow.tables.judging.tables import FEWEST_ROWS, check_columns, match
from cubicflow.tables.read.places import open_table
from cubicflow.tables.read.table import ROW_INDEX, Table
from cubicflow.tables.read.text.found_notations import detect_notations
from cubicflow.tables.read.text.reading import Reading
from cubicflow.tables.schema.split import PARTS, RowSample
from cubicflow.tables.schema.usable_rows import Missing, Piece, pieces
from cubicflow.tables.table_error import TableError, some

MOST_ROWS = 200_000  # rows of each table; a larger table is subsampled
MOST_ATTEMPTS = 100  # attempts to draw rows without missing values
NO_TRAIN = "copies and closest rows are left out, because they need the training rows"
TRAIN_IS_REAL = "the training rows equal the real rows, so copies and closest rows of the real rows mean little"


# --- two files ---


def judge_files(
    real: str | Path,
    sampled: str | Path,
    train: str | Path | None = None,
    *,
    words: Collection[str] = (),
    drop: Collection[str] = (),
    seed: int = 0,
    reading: Reading | None = None,
) -> Judgement:
    """Judge the sampled rows of one file against the real rows of another, as :func:`judge` does for tables in memory.

    Args:
        real: the file of held-out rows.
        sampled: the file of sampled rows.
        train: the file of training rows; optional.
        words: columns of numbers that are names, such as postcodes.
        drop: columns to leave out.
        seed: the seed of subsampling and of the classifier.
        reading: the header and the comment mark of the files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("real", "sampled"):
    ...         _ = Path(folder, f"{name}.csv").write_text("a,b\\n" + "1,x\\n2,y\\n" * 30)
    ...     found = judge_files(f"{folder}/real.csv", f"{folder}/sampled.csv")
    >>> found.errors.shape, found.rows
    (0.0, {'real': 60, 'sampled': 60})
    """
    paths = {"real": real, "sampled": sampled, "train": train}
    given = {part: open_table(path, reading) for part, path in paths.items() if path is not None}
    opened: dict[str, Table] = {}
    for part, table in given.items():
        opened[table.name if table.name not in opened else f"{table.name} (as {part} rows)"] = table
    columns = {
        title: [name for name in table.names if name not in drop and not re.fullmatch(ROW_INDEX, name)]
        for title, table in opened.items()
    }
    if unknown := [name for name in drop if not any(name in table.types for table in opened.values())]:
        names = some(given["real"].names)
        raise TableError(f"there is no column {some(unknown)} to leave out; the columns are {names}")
    check_columns(columns)
    notes: list[str] = [] if train is not None else [NO_TRAIN]
    texts = set(words)
    tables: dict[str, pa.Table] = {}
    for title, table in opened.items():
        tables[title] = _typed_rows(table, columns[title], texts, notes)
        if len(tables) == 1:  # a column that is text in the real table is text in all tables
            texts |= {name for name in columns[title] if family(tables[title].schema.field(name).type) == "text"}
    notes += _same_files(given)
    return judge_matched(match(tables, words), seed=seed, notes=notes)


def _typed_rows(table: Table, columns: list[str], texts: Collection[str], notes: list[str]) -> pa.Table:
    """Return rows of the table with their types. The columns in ``texts`` of a text file stay text."""
    table = detect_notations(table.spooled(columns), columns, texts)
    rows = _some_rows(table, pieces(table, columns, Missing.MODEL), notes)
    if not table.is_text:
        return rows
    typed = {}
    for name in columns:
        type, text = table.types[name], rows.column(name).combine_chunks()
        typed[name] = text if name in texts or type in (pa.string(), pa.null()) else read_text(text, type)
    return pa.table(typed)


def _some_rows(table: Table, found: Iterable[Piece], notes: list[str]) -> pa.Table:
    """Return the rows of the table that are judged: at most MOST_ROWS. Remarks on the table are added to ``notes``."""
    chosen, count = RowSample(MOST_ROWS), 0
    for piece in found:
        chosen.update(piece.batch, piece.numbers)
        count += len(piece.batch)
    notes += [f"{table.name}: {remark}" for remark in table.remarks]
    if not count:
        raise TableError(f"{table.name}: the table has no rows to judge by; give {FEWEST_ROWS} or more")
    rows = chosen.table()
    if len(rows) < count:
        notes.append(f"{table.name}: {len(rows):,} of {count:,} rows are judged, chosen by a hash of their row numbers")
    return rows


def _same_files(given: Mapping[str, Table]) -> list[str]:
    notes = []
    fingerprints = {name: table.fingerprint() for name, table in given.items()}
    if fingerprints["real"] == fingerprints["sampled"]:
        notes.append("both files hold the same rows, so no classifier can separate them")
    if fingerprints["real"] == fingerprints.get("train"):
        notes.append(TRAIN_IS_REAL)
    if fingerprints["sampled"] == fingerprints.get("train"):
        notes.append("the training rows equal the sampled rows, so every sample is a copy")
    return notes


# --- a run ---


def judge_run(
    fitted: FittedTable,
    held_out: Table,
    train: Table | None = None,
    *,
    missing: Missing | str | None = None,
    seed: int = 0,
) -> Judgement:
    """Sample as many rows as ``held_out`` has, and judge the samples against the held-out rows.

    - If ``held_out`` is the file that the model was fitted to, only its test rows are used.
    - Without ``train``, the training rows come from the fitted file if that file still exists unchanged.
    - A conditional model samples with the context of one half of the rows. The other half is held out.
    - If rows with missing values are dropped, samples with missing values are drawn again.
    """
    notes: list[str] = []
    is_source = fitted.is_source(held_out)
    if is_source:
        notes.append(f"{held_out.name}: this is the file that the model was fitted to; only its test rows are held out")
    if fitted.schema.weights is not None:
        notes.append("the model was fitted with weights; in this judgement every row counts once")
    missing = missing or fitted.missing
    real = _rows_of_run(fitted, held_out, missing, "test" if is_source else None, notes)
    context_rows = real
    if fitted.schema.context:
        order = np.random.default_rng(seed).permutation(len(real))
        real, context_rows = (real.take(pa.array(half)) for half in np.array_split(order, 2))
        notes.append("the model is conditional: half of the rows give the context, the other half is held out")
    sampled = _sampled(fitted, context_rows, held_out, seed, without_gaps=Missing(missing) is Missing.DROP)
    title = f"{held_out.name} (test rows)" if is_source else str(held_out.name)
    tables = {title: _read(fitted, real, held_out), "the samples": sampled}
    source = train
    if train is None:
        with suppress(TableError):
            source = fitted.reopen()
    if source is None:
        notes.append(f"{NO_TRAIN}, and the fitted file is missing or has changed ({fitted.source})")
    else:
        part = "train" if fitted.is_source(source) else None
        if part is None and source.fingerprint() == held_out.fingerprint():
            notes.append(TRAIN_IS_REAL)
        known = _rows_of_run(fitted, source, missing, part, notes)
        tables[f"{source.name} (training rows)"] = _read(fitted, known, source)
    names = tables["the samples"].column_names
    words = [name for name in names if fitted.schema[name].is_list and not fitted.schema[name].is_ordered]
    ordered = {name: table.select(names) for name, table in tables.items()}
    return judge_matched(match(ordered, words), seed=seed, notes=notes)


def _rows_of_run(
    fitted: FittedTable, table: Table, missing: Missing | str, part: str | None, notes: list[str]
) -> pa.Table:
    """Return the fitted columns of a table's rows: the rows of one part, or of all parts if ``part`` is None.

    ``missing`` decides whether rows with missing values are kept.
    """

    def of_part() -> Iterator[Piece]:
        for piece in pieces(table, fitted.schema.check(table), missing):
            kept = np.isin(fitted.split.parts_of(piece.numbers), PARTS.index(part) if part else range(len(PARTS)))
            if kept.any():
                yield replace(piece, batch=piece.batch.filter(pa.array(kept)), numbers=piece.numbers[kept])

    return _some_rows(table, of_part(), notes)


def _read(fitted: FittedTable, rows: pa.Table, table: Table) -> pa.Table:
    """Return rows with text parsed as the types of the fitted columns."""
    try:
        return pa.table({n: fitted.schema[n].read(rows.column(n).combine_chunks()) for n in rows.column_names})
    except TableError as error:
        raise error.about(table.name) from None


def _sampled(fitted: FittedTable, context_rows: pa.Table, table: Table, seed: int, *, without_gaps: bool) -> pa.Table:
    """Return one sample per context row, given the context of that row if the model is conditional."""
    rows = context_rows.combine_chunks().to_batches()[0]
    try:
        sampled = pa.Table.from_batches([fitted.sample_like(rows, len(rows), seed=seed)])
        if without_gaps:
            sampled = _without_gaps(fitted, sampled, rows, seed)
    except TableError as error:  # for example a context value that the model does not know
        raise error.about(table.name) from None
    for column in fitted.schema.context:
        sampled = sampled.append_column(column.name, column.given(rows.column(column.name)))
    return sampled


def _without_gaps(fitted: FittedTable, sampled: pa.Table, rows: pa.RecordBatch, seed: int) -> pa.Table:
    """Draw samples with missing values again until all samples are complete. Raise TableError after too many
    attempts."""
    for attempt in range(1, MOST_ATTEMPTS):
        gaps = [pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False) for column in sampled.columns]
        lacking = np.flatnonzero(np.any(gaps, axis=0))
        if not len(lacking):
            return sampled
        again = fitted.sample_like(rows.take(pa.array(lacking)), len(lacking), seed=seed + attempt)
        index = np.arange(len(sampled))
        index[lacking] = len(sampled) + np.arange(len(lacking))
        sampled = pa.concat_tables([sampled, pa.Table.from_batches([again])]).take(pa.array(index))
    raise TableError(
        f"some samples still lack values after {MOST_ATTEMPTS} draws; keep rows with missing values", missing="model"
    )
