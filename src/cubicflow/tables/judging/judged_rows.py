"""The rows that are judged: those of two files, or of a file and a run that samples as many."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.tables.arrow_types import family, read_text
from cubicflow.tables.files.places import is_path
from cubicflow.tables.fitted import FittedTable
from cubicflow.tables.judging.judgement import Judgement, judge_matched
from cubicflow.tables.judging.matched import FEWEST_ROWS, check_columns, match
from cubicflow.tables.source import PARTS, ROW_INDEX, Missing, RowSample, Table, open_table, pieces
from cubicflow.tables.table_error import TableError, some
from cubicflow.tables.text.found_formats import in_own_formats
from cubicflow.tables.text.reading import Reading

MOST_ROWS = 200_000  # of each table; of larger ones a fair sample is judged
MOST_ATTEMPTS = 100  # to draw rows without gaps
NO_TRAIN = "copies and closest rows are left out: that takes the training rows"
TRAIN_IS_REAL = "the training rows are the real rows themselves, so copies and closest rows of real rows say little"


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
    """Judge the rows of one file beside those of another, as :func:`judge` does with tables in memory.

    ``drop`` are columns to leave out; ``reading`` says where the names are, and which lines are remarks.

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
    opened = dict(zip(_titles(given), given.values(), strict=True))
    columns = {title: _columns(table, drop) for title, table in opened.items()}
    if unknown := [name for name in drop if not any(name in table.types for table in opened.values())]:
        raise TableError(f"there is no column {some(unknown)} to leave out; there are {some(given['real'].names)}")
    check_columns(columns)
    notes: list[str] = [] if train is not None else [NO_TRAIN]
    texts = set(words)
    tables: dict[str, pa.Table] = {}
    for title, table in opened.items():
        tables[title] = _typed_rows(table, columns[title], texts, notes)
        if len(tables) == 1:  # what is text in the real table is text in all
            texts |= {name for name in columns[title] if family(tables[title].schema.field(name).type) == "text"}
    notes += _same_files(given)
    return judge_matched(match(tables, words), seed=seed, notes=notes)


def _titles(given: Mapping[str, Table]) -> list[str]:
    """What messages call the tables: their paths, and of a file that is given again also what it stands for."""
    titles: list[str] = []
    for part, table in given.items():
        titles.append(str(table.path) if str(table.path) not in titles else f"{table.path} (as {part} rows)")
    return titles


def _columns(table: Table, drop: Collection[str]) -> list[str]:
    return [name for name in table.names if name not in drop and not re.fullmatch(ROW_INDEX, name)]


def _typed_rows(table: Table, columns: list[str], texts: Collection[str], notes: list[str]) -> pa.Table:
    """Rows of the table with their own types; of a file of text, the columns in ``texts`` as they stand."""
    table = in_own_formats(table.spooled(columns), columns, texts)
    notes += [f"{table.path}: {remark}" for remark in table.remarks]
    chosen, start = RowSample(MOST_ROWS), 0
    for batch in table.batches(columns):
        chosen.update(batch, np.arange(start, start + len(batch)))
        start += len(batch)
    if not start:
        raise TableError(f"{table.path}: the table has no rows; give {FEWEST_ROWS} or more")
    rows = _noted(chosen.table(), start, table, notes)
    if not table.is_text:
        return rows
    typed = {}
    for name in columns:
        type, text = table.types[name], rows.column(name).combine_chunks()
        typed[name] = text if name in texts or type in (pa.string(), pa.null()) else read_text(text, type)
    return pa.table(typed)


def _noted(rows: pa.Table, read: int, table: Table, notes: list[str]) -> pa.Table:
    if len(rows) < read:
        notes.append(f"{table.path}: {len(rows):,} of {read:,} rows are judged, chosen by their numbers")
    return rows


def _same_files(given: Mapping[str, Table]) -> list[str]:
    notes = []
    marks = {name: table.fingerprint() for name, table in given.items()}
    if marks["real"] == marks["sampled"]:
        notes.append("both files hold the same rows, so nothing can tell them apart")
    if marks["real"] == marks.get("train"):
        notes.append(TRAIN_IS_REAL)
    if marks["sampled"] == marks.get("train"):
        notes.append("the training rows are the sampled rows themselves, so every one of them is a copy")
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
    """Sample as many rows as ``held_out`` has, and judge them beside those.

    Of the very file that the model was fitted to, only the test rows are held out. Without ``train`` the training rows
    are those of the fitted file, where it is still there and as it was. A conditional model is given the context of one
    half of the rows, and judged beside the other half. Where rows that lack a value are dropped, samples that do are
    drawn again.

    >>> import tempfile
    >>> from cubicflow.tables import fit_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("a,b\\n" + "".join(f"{i % 7},{i % 5}\\n" for i in range(300)))
    ...     fitted = fit_table(f"{folder}/t.csv", f"{folder}/run", steps=3, progress=False).fitted
    ...     judge_run(fitted, open_table(f"{folder}/t.csv")).rows
    {'real': 30, 'sampled': 30, 'train': 240}
    """
    notes: list[str] = []
    is_source = fitted.is_source(held_out)
    if is_source:
        notes.append(f"{held_out.path}: this is the file that the model was fitted to; only its test rows are held out")
    if fitted.schema.weights is not None:
        notes.append("the model was fitted with weights; here every row counts once")
    missing = missing or fitted.missing
    real = _rows_of_run(fitted, held_out, missing, "test" if is_source else None, notes)
    lenders = real
    if fitted.schema.context:
        order = np.random.default_rng(seed).permutation(len(real))
        real, lenders = (real.take(pa.array(half)) for half in np.array_split(order, 2))
        notes.append("the model is conditional: half of the rows lend it their context, the others are held out")
    sampled = _sampled(fitted, lenders, held_out, seed, whole=Missing(missing) is Missing.DROP)
    title = f"{held_out.path} (test rows)" if is_source else str(held_out.path)
    tables = {title: _read(fitted, real, held_out), "the samples": sampled}
    source = train if train is not None else _fitted_file(fitted)
    if source is None:
        notes.append(f"{NO_TRAIN}, and the fitted file is gone or has changed ({fitted.source})")
    else:
        part = "train" if fitted.is_source(source) else None
        if part is None and source.fingerprint() == held_out.fingerprint():
            notes.append(TRAIN_IS_REAL)
        known = _rows_of_run(fitted, source, missing, part, notes)
        tables[f"{source.path} (training rows)"] = _read(fitted, known, source)
    names = tables["the samples"].column_names
    words = [fitted.schema[name].name for name in names if _is_word(fitted, name)]
    ordered = {name: table.select(names) for name, table in tables.items()}
    return judge_matched(match(ordered, words), seed=seed, notes=notes)


def _is_word(fitted: FittedTable, name: str) -> bool:
    column = fitted.schema[name]
    return column.is_list and not column.is_ordered


def _fitted_file(fitted: FittedTable) -> Table | None:
    try:
        if not is_path(fitted.source):
            return None
        table = open_table(fitted.source, fitted.reading)
        return table if fitted.is_source(table) else None
    except (TableError, OSError):
        return None


def _rows_of_run(
    fitted: FittedTable, table: Table, missing: Missing | str, part: str | None, notes: list[str]
) -> pa.Table:
    """Rows of a table like the fitted one, of one part of it or of all; with their gaps, if the model has them."""
    chosen, count = RowSample(MOST_ROWS), 0
    for piece in pieces(table, fitted.schema.check(table), missing):
        batch, numbers = piece.batch, piece.numbers
        if part is not None:
            kept = fitted.split.parts_of(numbers) == PARTS.index(part)
            batch, numbers = batch.filter(pa.array(kept)), numbers[kept]
        if len(batch):
            chosen.update(batch, numbers)
            count += len(batch)
    if not count:
        raise TableError(f"{table.path}: the table has no rows to judge by; give {FEWEST_ROWS} or more")
    return _noted(chosen.table(), count, table, notes)


def _read(fitted: FittedTable, rows: pa.Table, table: Table) -> pa.Table:
    """Rows with the types of the fitted columns, where they were text."""
    try:
        return pa.table({n: fitted.schema[n].read(rows.column(n).combine_chunks()) for n in rows.column_names})
    except TableError as error:
        raise error.about(table.path) from None


def _sampled(fitted: FittedTable, lenders: pa.Table, table: Table, seed: int, *, whole: bool) -> pa.Table:
    """As many samples as there are rows, given their context where the model is conditional; ``whole`` ones without
    gaps."""
    rows = lenders.combine_chunks().to_batches()[0]
    try:
        sampled = pa.Table.from_batches([fitted.sample_like(rows, len(rows), seed=seed)])
        if whole:
            sampled = _without_gaps(fitted, sampled, rows, seed)
    except TableError as error:  # a context that the model does not know
        raise error.about(table.path) from None
    for column in fitted.schema.context:
        sampled = sampled.append_column(column.name, column.given(rows.column(column.name)))
    return sampled


def _without_gaps(fitted: FittedTable, sampled: pa.Table, rows: pa.RecordBatch, seed: int) -> pa.Table:
    """The samples, those with gaps drawn again until they have none."""
    for attempt in range(1, MOST_ATTEMPTS):
        gaps = [pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False) for column in sampled.columns]
        lacking = np.flatnonzero(np.any(gaps, axis=0))
        if not len(lacking):
            return sampled
        again = fitted.sample_like(rows.take(pa.array(lacking)), len(lacking), seed=seed + attempt)
        place = np.arange(len(sampled))
        place[lacking] = len(sampled) + np.arange(len(lacking))
        sampled = pa.concat_tables([sampled, pa.Table.from_batches([again])]).take(pa.array(place))
    raise TableError("hardly a sample is without gaps; judge rows as they are", "--missing model")
