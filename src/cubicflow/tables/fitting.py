"""Fit a table: from a file to a run folder, with schema, rows, model, training and test score."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cubicflow.advice import Advice
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.fitted import MODELS, SECTION, FittedTable
from cubicflow.tables.model.flow import evenly_spaced, sampled
from cubicflow.tables.model.table_model import TableModel
from cubicflow.tables.query.constraints import LinearConstraint, learn_constraints
from cubicflow.tables.query.sample import all_constraints
from cubicflow.tables.read.places import STANDARD_INPUT, open_table
from cubicflow.tables.read.text.reading import Reading, check_reading
from cubicflow.tables.run.copies import copied_rows, copy_constraints, described_copies, find_copies
from cubicflow.tables.run.means import Mean, MeanOfRows
from cubicflow.tables.run.starts import begin_from, check_same_table, check_start, model_of
from cubicflow.tables.run.verdicts import Score, ScoreOfRows, Used, score_lines, score_warnings
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.inference import Inferred, TableOptions, infer
from cubicflow.tables.schema.split import split_from
from cubicflow.tables.schema.usable_rows import Missing
from cubicflow.tables.table_error import TableError
from cubicflow.tables.table_rows import TableRows
from cubicflow.training import FitResult, TrainingConfig, fit
from cubicflow.training.run_folder import RunFolder

ONLY_COLUMNS = "a model of columns, which also takes conditions on any column and fills missing values, is fitted"
FLOW_CHOSEN = Advice(f"all columns are complete real numbers, so the model is a flow; {ONLY_COLUMNS}", model="columns")
MOST_TRIED = 5_000  # rows; with fewer, both models are tried, because the better one depends on the table
UNTUNED = {"seed", "device", "precision", "checkpoint_seconds"}  # training settings that suit both models
SCORED_ROWS = 10_000  # training rows that are scored
ROWS_AT_ONCE = 1 << 12  # rows scored at once


@dataclass(frozen=True)
class TableFit:
    """A finished fit: the model, its scores in the data's own units, and the rows used."""

    fit: FitResult
    fitted: FittedTable
    score: Score  # on the test rows
    train: Score  # on at most ten thousand training rows
    used: Used

    @property
    def test(self) -> Mean:
        """The mean log likelihood of the test rows."""
        return self.score.model

    def lines(self) -> list[str]:
        """Return the columns of the table and the scores in words."""
        mean = f"test log likelihood {self.test} over {self.test.rows:,} rows, in the data's own units"
        return [*self.fitted.schema.lines(), mean, *score_lines(self.score, self.train), str(self.used)]

    def warnings(self) -> list[str]:
        """Return warnings about a poor fit."""
        return score_warnings(self.score, self.train)


def fit_table(
    data: str | Path,
    run: str | Path,
    options: TableOptions | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    model: str | None = None,
    reading: Reading | None = None,
    split: str | None = None,
    start: str | Path | None = None,
    constraints: Sequence[str] = (),
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    say: Callable[[str], None] = lambda _: None,
    **training: Any,
) -> TableFit:
    """Fit a model to the table at ``data`` and write it to the folder ``run``, as ``cubicflow fit`` does.

    Args:
        options: the user's options for the columns.
        settings: settings of :class:`cubicflow.tables.model.network.ColumnsModel` or of
            :func:`cubicflow.flows.tabular`; defaults depend on the number of rows.
        model: ``"columns"`` or ``"flow"``; by default a flow for complete rows of real numbers, else a model of
            columns. If a complete table of numbers has fewer than 5,000 rows, and no settings, constraints or start
            are given, both are fitted, and the one that is better on the validation rows is kept.
        reading: which rows of the file hold the names, and which lines are comments.
        split: ``"time:column"`` to test on the latest rows of a table that is sorted by that column.
        start: a run of the same table, whose weights initialise this run.
        constraints: constraints that every sample meets, such as ``"start <= end"``. A row of the table that breaks one
            raises TableError.
        resume, overwrite: what to do if the folder already holds a run.
        progress: whether to show progress on standard error.
        say: called with each line of findings about the table.
        training: settings of :class:`cubicflow.training.TrainingConfig`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("word,size\\n" + "a,0.25\\nb,1.5\\nb,2.75\\n" * 20)
    ...     result = fit_table(f"{folder}/t.csv", f"{folder}/run", steps=5, seed=1, progress=False)
    >>> result.test.rows, [column.describe() for column in result.fitted.schema.columns]
    (6, ['mass of each of 2 values', 'mass per step of 0.01'])
    """
    run, options, reading = Path(run), options or TableOptions(), reading or Reading()
    if model not in (None, *MODELS):
        raise TableError(f"model should be {' or '.join(MODELS)}, got {model!r}")
    config = TrainingConfig.make(**training)  # raises for an unknown setting before the table is read
    requested_split = split_from(split, config.seed)
    check_start(start, run)
    RunFolder(run).check(resume=resume, overwrite=overwrite)  # raises before the table is read
    table = open_table(data, reading)
    check_reading(table, reading)
    temporary = run.absolute().parent if run.absolute().parent.is_dir() else None  # folder for temporary files
    requested = None if model is None else MODELS[model]
    if requested is not None and not requested.takes_gaps and options.missing is Missing.MODEL:
        raise TableError(
            f"{requested.phrase} cannot model missing values; fit a model of columns, or leave out rows that lack a "
            "value",
            missing="drop",
        )
    missing = _missing(requested or MODELS["columns"], options)
    how: dict[str, Any] = {"options": replace(options, missing=missing), "split": requested_split}
    found = infer(table, **how, spool=temporary, leave_out_identifiers=True)
    resumed = model_of(run) if resume else None
    usual = resumed or ("columns" if options.missing is Missing.MODEL else suited_model(found))
    kind = requested or MODELS[usual]
    try:
        kind.check(found)
    except TableError as error:
        raise error.about(table.name) from None
    missing = _missing(kind, options)
    is_tuned = settings or constraints or start or resumed or training.keys() - UNTUNED
    other = None if requested or is_tuned else _rival(kind, found, options)
    parts = ", ".join(f"{count:,} for {name}" for name, count in found.parts.items())
    say(f"{table.name}: {found.rows:,} rows ({parts}), columns to model: {len(found.schema.model)}, by {kind.phrase}")
    if not kind.has_laws and requested is None and other is None:
        say(Advice.after("note: ", FLOW_CHOSEN))
    for note in found.notes:
        say(Advice.after("note: ", note))
    for warning in found.warnings:
        say(f"warning: {warning}")
    _check_settings(settings or {}, kind)
    kept_constraints = learn_constraints(constraints, found.schema, found.table, missing)
    about = found.schema, found.numbers, found.row_numbers, config.seed, settings or {}
    prepared = prepare(kind, *about)
    kept_constraints = (*kept_constraints, *(each for each in prepared.copies if each not in kept_constraints))
    for note in (*prepared.model.notes, *described_copies(prepared.copies), *_gap_notes(found)):
        say(Advice.after("note: ", note))
    train, validation, test = prepared.rows
    if copies := copied_rows(train, (validation, test)).message():
        say(f"warning: {copies}")
    origin = found.split, missing, table.origin.source or STANDARD_INPUT, found.table.fingerprint(), found.parts
    read = replace(reading, notations=found.table.notations)
    fitted = FittedTable(prepared.model, *origin, read, kept_constraints)
    all_constraints(fitted)  # raises for a constraint that this model cannot keep
    if resume and (before := check_same_table(run, fitted.to_json())) is not None:
        fitted = replace(fitted, model=fitted.model.resumed(before))
    before_start = None if start is None else begin_from(Path(start), fitted)
    run_options: dict[str, Any] = {"run": run, "resume": resume, "overwrite": overwrite, "progress": progress}
    trained, result = train_rows(
        prepared._replace(model=fitted.model), training, sections={SECTION: fitted.to_json()}, **run_options
    )
    if before_start is not None and (worse := before_start.worse(result)):
        say(f"warning: {worse}")
    fitted = replace(fitted, model=trained)
    if other is not None and not prepared.model.notes and not prepared.copies:  # a flow keeps no rules and no copies
        say(f"note: both models can serve this table, so {other.phrase} is fitted too")
        rival = prepare(other, *about)
        second = replace(fitted, model=rival.model, missing=_missing(other, options))
        fitted, result = _better(fitted, result, second, rival, training, run, progress=progress, say=say)
        trained = fitted.model
    some = train.part(torch.from_numpy(evenly_spaced(np.arange(train.num_rows), SCORED_ROWS)))
    score_of_test, score_of_train = (score_part(trained, part) for part in (test, some))
    columns = len(found.schema.columns) - len(found.schema.of_role("dropped"))
    used = Used(found.rows + found.dropped, found.rows, columns, found.lost)
    return TableFit(result, fitted, score_of_test, score_of_train, used)


def _missing(kind: type[TableModel], options: TableOptions) -> Missing:
    """Return what scores do with rows that lack a value. Training rows of a flow are complete; others may not be."""
    return Missing(options.missing or (Missing.MODEL if kind.takes_gaps else Missing.ERROR))


def _rival(kind: type[TableModel], found: Inferred, options: TableOptions) -> type[TableModel] | None:
    """Return the other model, if it can serve the table as well and the table is small; else None."""
    (other,) = (each for each in MODELS.values() if each is not kind)
    in_turn = os.environ.get("WORLD_SIZE", "1") == "1"  # several processes would have to agree on the folders
    if found.rows >= MOST_TRIED or found.gaps or options.missing is Missing.MODEL or not in_turn:
        return None
    try:
        other.check(found)
    except TableError:
        return None
    return other


def _better(
    first: FittedTable,
    result: FitResult,
    second: FittedTable,
    rival: Prepared,
    training: Mapping[str, Any],
    run: Path,
    *,
    progress: bool,
    say: Callable[[str], None],
) -> tuple[FittedTable, FitResult]:
    """Train a rival of the model in the folder ``run``. Keep the one that is better on the validation rows there, and
    return it."""
    validation = rival.rows[1].plain(0, rival.rows[1].num_rows)
    run = run.resolve()  # a link keeps pointing to the run
    with tempfile.TemporaryDirectory(dir=run.parent, prefix=f".{run.name}-") as folder:
        path = Path(folder) / "run"
        sections = {SECTION: second.to_json()}
        trained, tried = train_rows(rival, training, sections=sections, run=path, progress=progress)
        gain = trained.score(validation).log_p - first.model.score(validation).log_p
        found = MeanOfRows.of(gain, validation.weights).result()
        is_better = found.mean > 0
        kept, left = (trained, first.model) if is_better else (first.model, trained)
        message = (
            f"on the {found.rows:,} validation rows, {kept.phrase} is better than {left.phrase}, by "
            f"{replace(found, mean=abs(found.mean))}, so it is kept"
        )
        if kept.has_laws:
            say(f"note: {message}")
        else:
            say(Advice.after("note: ", Advice(f"{message}; {ONLY_COLUMNS}", model="columns")))
        if is_better:
            run.rename(path.with_name("first"))
            path.rename(run)
    return (replace(second, model=trained), tried) if is_better else (first, result)


class Prepared(NamedTuple):
    """An untrained model, the rows of each part, and constraints that keep copies of columns equal."""

    model: TableModel
    rows: Sequence[TableRows]
    copies: Sequence[LinearConstraint]


def prepare(
    kind: type[TableModel],
    schema: Schema,
    numbers: Floats,
    parts: Sequence[NDArray[np.int64]],
    seed: int,
    settings: Mapping[str, Any],
) -> Prepared:
    """Return a model for plain numbers (N, D + C + weight), and its rows.

    Args:
        parts: the row numbers of each part; training rows are the first.
        settings: settings of the network; others depend on the number of training rows.
    """
    model = kind.learn(schema, numbers, parts[0], seed, settings)
    every = TableRows(model.encoder, numbers)
    copies = copy_constraints(model, numbers[parts[0]]) if kind.has_laws else []
    return Prepared(model, [every.part(torch.from_numpy(part)) for part in parts], copies)


def train_rows(prepared: Prepared, training: Mapping[str, Any], **options: Any) -> tuple[TableModel, FitResult]:
    """Train a model on the first part of its rows, and validate it on the second. Return it with the fit's result.

    ``training`` are settings of :class:`cubicflow.training.TrainingConfig`; others depend on the number of rows.
    ``options`` are keyword arguments of :func:`cubicflow.training.fit`.
    """
    train, validation, *_ = prepared.rows
    config = TrainingConfig.make(**{**prepared.model.suited_training(train.num_rows), **training})
    result = fit(prepared.model.network, train, validation, config, **options)
    return prepared.model.with_network(result.flow), result


def fit_rows(
    name: str,
    schema: Schema,
    numbers: Floats,
    parts: Sequence[NDArray[np.int64]],
    settings: Mapping[str, Any],
    training: Mapping[str, Any],
    *,
    progress: bool = False,
) -> tuple[FittedTable, Floats]:
    """Fit the model with this name to plain numbers; return the table in float64, and the scores of the second part.

    The arguments are those of :func:`prepare` and :func:`train_rows`.
    """
    prepared = prepare(MODELS[name], schema, numbers, parts, training["seed"], settings)
    model, _ = train_rows(prepared, training, progress=progress)
    model.network.double()
    fitted = FittedTable(
        model, missing=Missing.MODEL if model.takes_gaps else Missing.DROP, constraints=tuple(prepared.copies)
    )
    return fitted, model.score(prepared.rows[1].plain(0, len(parts[1]))).log_p


def score_part(model: TableModel, rows: TableRows) -> Score:
    """Return the mean log likelihood of a part of the table, and that of independent columns."""
    score = ScoreOfRows()
    for first in range(0, rows.num_rows, ROWS_AT_ONCE):
        numbers = rows.plain(first, min(first + ROWS_AT_ONCE, rows.num_rows))
        scored = model.score(numbers)
        score += ScoreOfRows.of(scored.log_p, scored.baseline, numbers.weights)
    return score.result()


def _check_settings(settings: Mapping[str, Any], kind: type[TableModel]) -> None:
    """Raise TableError for a setting of the other kind of model."""
    (other,) = (each for each in MODELS.values() if each is not kind)
    for name in settings:
        if name not in kind.setting_names() and name in other.setting_names():
            raise TableError(
                f"{name} is a setting of {other.phrase}, but the table is fitted by {kind.phrase}; leave the setting "
                "out, or choose the other model",
                model=other.name,
            )


def suited_model(found: Inferred) -> str:
    """Return the default model of a table: ``"flow"`` if all columns are real and complete, without atoms, circles and
    copies of columns, else ``"columns"``.
    """
    columns = found.schema.model
    if found.gaps or any(column.counts_mass for column in columns):
        return "columns"
    try:
        MODELS["flow"].check(found)
    except TableError:
        return "columns"
    y = np.column_stack([sampled(found, column) for column in columns])
    return "columns" if find_copies(columns, y) else "flow"


def _gap_notes(found: Inferred) -> list[str]:
    if not found.gaps:
        return []
    counted = ", ".join(f"{name!r} ({count:,})" for name, count in found.gaps.items())
    return [f"missing values are modelled as a separate value, in {counted}"]
