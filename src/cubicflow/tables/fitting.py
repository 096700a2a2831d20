"""Fit a table: from a file to a run folder, with schema, rows, model, training and test score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from cubicflow.advice import Advice
from cubicflow.flows import Flow, tabular
from cubicflow.flows.tabular_recipe import TabularConfig
from cubicflow.nets.rng import seeded
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.copied_columns import copy_constraints, described_copies, find_copies
from cubicflow.tables.fitted import SECTION, FittedTable
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.model.cell_encoder import CellEncoder
from cubicflow.tables.model.cells import find_atoms
from cubicflow.tables.model.flow_encoder import ROWS_AT_ONCE, FlowEncoder, check_numbers
from cubicflow.tables.model.independent import IndependentColumns
from cubicflow.tables.model.network import ColumnsModel
from cubicflow.tables.model.plain_rows import plain_numbers
from cubicflow.tables.model.rules import described_rules
from cubicflow.tables.query.constraints import Constraint, learn_constraints
from cubicflow.tables.read.places import STANDARD_INPUT, open_table
from cubicflow.tables.read.text.reading import Reading, check_reading
from cubicflow.tables.run.copied_rows import copied_rows
from cubicflow.tables.run.means import Mean
from cubicflow.tables.run.starts import begin_from, check_same_table, check_start
from cubicflow.tables.run.verdict import Score, ScoreOfRows, Used
from cubicflow.tables.schema.inference import Inferred, TableOptions, infer
from cubicflow.tables.schema.split import split_from
from cubicflow.tables.schema.usable_rows import Missing
from cubicflow.tables.table_error import TableError
from cubicflow.tables.table_rows import SplitRows, TableRows, load_numbers, load_parts, parts_of, split_numbers
from cubicflow.training.config import TrainingConfig
from cubicflow.training.loop import FitResult, fit
from cubicflow.training.run_folder import RunFolder

MODELS = ("columns", "flow")
FLOW_CHOSEN = Advice(
    "all columns are complete real numbers, so the model is a flow; a model of columns, which also takes conditions on "
    "any column and fills missing values, is fitted",
    model="columns",
)
PHRASES = {"columns": "a model of columns", "flow": "a flow"}  # names of the models in messages
EPOCHS = 30  # default number of epochs of a model of columns
# Runs on tables are short, so the learning rate is above the 5e-4 that suits hundreds of thousands of steps.
SUITED_TRAINING: dict[str, Any] = {"learning_rate": 1e-3}
TRAINING_ROWS = 10_000  # training rows that are scored, and that the marginals are learned from


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
            columns.
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
    if model == "flow" and options.missing is Missing.MODEL:
        raise TableError(
            "a flow cannot model missing values; fit a model of columns, or leave out rows that lack a value",
            missing="drop",
        )
    missing = Missing(options.missing or (Missing.ERROR if model == "flow" else Missing.MODEL))
    requested: dict[str, Any] = {"options": replace(options, missing=missing), "split": requested_split}
    requested |= {"spool": temporary, "leave_out_identifiers": True}
    found = infer(table, **requested)
    requested_model = model
    model = model or ("columns" if options.missing is Missing.MODEL else suited_model(found))
    if model == "flow":
        try:
            check_flow(found)
        except TableError as error:
            raise error.about(table.name) from None
        # training rows are complete; rows to score may have missing values
        missing = Missing(options.missing or Missing.ERROR)
    parts = ", ".join(f"{count:,} for {name}" for name, count in found.parts.items())
    say(
        f"{table.name}: {found.rows:,} rows ({parts}), columns to model: {len(found.schema.model)}, by {PHRASES[model]}"
    )
    if model == "flow" and requested_model is None:
        say(Advice.after("note: ", FLOW_CHOSEN))
    for note in found.notes:
        say(Advice.after("note: ", note))
    for warning in found.warnings:
        say(f"warning: {warning}")
    _check_settings(settings or {}, model)
    kept_constraints = learn_constraints(constraints, found.schema, found.table, missing)
    prepare = prepare_columns if model == "columns" else prepare_flow
    prepared = prepare(found, missing, config.seed, settings or {}, temporary)
    kept_constraints = (*kept_constraints, *(each for each in prepared.copies if each not in kept_constraints))
    for note in prepared.notes:
        say(Advice.after("note: ", note))
    if copies := copied_rows(prepared.rows).message():
        say(f"warning: {copies}")
    some_rows = evenly_spaced(prepared.rows.train, TRAINING_ROWS)
    independent = learn_independent(some_rows) if prepared.cells is None else None
    origin = found.split, missing, table.origin.source or STANDARD_INPUT, found.table.fingerprint(), found.parts
    read = replace(reading, notations=found.table.notations)
    fitted = FittedTable(prepared.model, found.schema, *origin, independent, prepared.cells, read, kept_constraints)
    fitted.all_constraints()  # raises for a constraint that this model cannot keep
    if resume and (before := check_same_table(run, fitted.to_json())) is not None:
        # Use the marginals of the original run: older versions stored none, and another machine may round differently.
        kept = before.get("marginals")
        fitted = replace(
            fitted, independent=None if kept is None else IndependentColumns.from_json(kept, found.schema.model)
        )
    before_start = None if start is None else begin_from(Path(start), fitted)
    sections = {SECTION: fitted.to_json()}
    run_options: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "progress": progress}
    suited = TrainingConfig.make(**{**prepared.training, **training})
    result = fit(
        prepared.model, prepared.rows.train, prepared.rows.validation, suited, run=run, sections=sections, **run_options
    )
    if before_start is not None and (worse := before_start.worse(result)):
        say(f"warning: {worse}")
    fitted = replace(fitted, flow=result.flow)
    test, train = (score_part(fitted, part) for part in (prepared.rows.test, some_rows))
    columns = len(found.schema.columns) - len(found.schema.of_role("dropped"))
    used = Used(found.rows + found.dropped, found.rows, columns, found.lost)
    return TableFit(result, fitted, test, train, used)


def score_part(fitted: FittedTable, rows: TableRows) -> Score:
    """Return the mean log likelihood of a part of the table, and that of independent columns."""
    score = ScoreOfRows()
    for first in range(0, rows.num_rows, ROWS_AT_ONCE):
        numbers = rows.plain(first, min(first + ROWS_AT_ONCE, rows.num_rows))
        scored = fitted.scored(numbers)
        score.update(scored.log_p, scored.baseline, numbers.weights)
    return score.result()


def evenly_spaced(rows: TableRows, most: int) -> TableRows:
    """Return at most ``most`` of the rows, evenly spaced."""
    if rows.num_rows <= most:
        return rows
    return rows.part(torch.arange(most) * rows.num_rows // most)


def learn_independent(rows: TableRows) -> IndependentColumns | None:
    """Return the marginals of training rows; None for a single column without context, which depends on nothing."""
    if len(rows.encoder.columns) == 1 and not rows.encoder.schema.context:
        return None
    numbers = rows.plain(0, rows.num_rows)
    return IndependentColumns.learn(rows.encoder.columns, numbers.y, numbers.weights)


def _check_settings(settings: Mapping[str, Any], model: str) -> None:
    """Raise TableError for a setting of the other kind of model."""
    known = {"flow": {field.name for field in fields(TabularConfig)}, "columns": {*signature(ColumnsModel).parameters}}
    other = next(name for name in MODELS if name != model)
    for name in settings:
        if name not in known[model] and name in known[other]:
            raise TableError(
                f"{name} is a setting of {PHRASES[other]}, but the table is fitted by {PHRASES[model]}; "
                "leave the setting out, or choose the other model",
                model=other,
            )


class Prepared(NamedTuple):
    """A model, the rows to train it on, training settings for these rows, notes for the user, and copied columns."""

    model: Any
    cells: CellEncoder | None
    rows: SplitRows
    training: Mapping[str, Any]
    notes: Sequence[str]
    copies: Sequence[Constraint] = ()


def suited_model(found: Inferred) -> str:
    """Return the default model of a table: ``"flow"`` if all columns are real and complete, without atoms, circles and
    copies of columns, else ``"columns"``.
    """
    columns = found.schema.model
    if found.gaps or any(column.counts_mass for column in columns):
        return "columns"
    try:
        check_flow(found)
    except TableError:
        return "columns"
    y = np.column_stack([_sampled(found, column) for column in columns])
    return "columns" if find_copies(columns, y) else "flow"


def check_flow(found: Inferred) -> None:
    """Raise TableError for a column that a flow cannot model: one that does not hold numbers, or one with atoms."""
    check_numbers(found.schema.model)
    for column in found.schema.model:
        if not column.counts_mass and len(atoms := find_atoms(_sampled(found, column))):
            raise TableError(
                f"column {column.name!r} is {column.kind}, but {atoms[0]:g} repeats in it, and a flow gives no single "
                "value a probability; fit a model of columns",
                model="columns",
            )


def _sampled(found: Inferred, column: Column) -> Floats:
    """Return the plain numbers of a column in a sample of training rows, without missing values."""
    y = plain_numbers(column, found.sample.column(column.name).combine_chunks())
    return y[~np.isnan(y)]


def prepare_flow(
    found: Inferred, missing: Missing, seed: int, settings: Mapping[str, Any], folder: Path | None
) -> Prepared:
    """Return a flow of the encoded columns, its rows and its training settings."""
    encoder = FlowEncoder(found.schema)
    rows = load_parts(found.table, encoder, found.split, missing, found.rows, folder)
    return Prepared(suited_flow(encoder, found.parts["train"], seed, settings), None, rows, SUITED_TRAINING, ())


def prepare_columns(
    found: Inferred, missing: Missing, seed: int, settings: Mapping[str, Any], folder: Path | None
) -> Prepared:
    """Return a model of columns, its encoder, its rows and its training settings."""
    numbers, chosen = load_numbers(found.table, found.schema, found.split, missing, found.rows, folder)
    training = split_numbers(found.schema, np.asarray(numbers[chosen[0].numpy()]))
    encoder = CellEncoder.learn(found.schema, *training)
    model = suited_columns_model(encoder, training.y, seed, settings)
    copies = copy_constraints(found.schema, training.y, encoder.rules)
    notes = [*described_rules(encoder.rules), *described_copies(copies), *_gap_notes(found)]
    rows = parts_of(encoder, numbers, chosen)
    return Prepared(model, encoder, rows, suited_columns_training(len(training.y)), notes, copies)


def _gap_notes(found: Inferred) -> list[str]:
    if not found.gaps:
        return []
    counted = ", ".join(f"{name!r} ({count:,})" for name, count in found.gaps.items())
    return [f"missing values are modelled as a separate value, in {counted}"]


def suited_columns_model(encoder: CellEncoder, y: Floats, seed: int, settings: Mapping[str, Any]) -> ColumnsModel:
    """Return a model of the encoder's columns for training rows of plain numbers (N, D).

    The user's ``settings`` override the defaults for this number of rows.
    """
    columns: dict[str, Any] = {**encoder.model_arguments, "strangers": encoder.strangers(y)}
    with seeded(seed):
        model = ColumnsModel(**{**columns, **suited_columns(len(y)), **settings})
    model.start_from([torch.tensor(encoder.shares[name]) for name in encoder.order])
    return model


def suited_columns(rows: int) -> dict[str, Any]:
    """Return default settings of :class:`~cubicflow.tables.model.network.ColumnsModel` for this many training rows."""
    few, many = rows < 2_000, rows >= 30_000
    # Fast waves let a network tell single rows apart. With few rows it then memorises them instead of the dependence.
    octaves = 2 if rows < 500 else 3 if few else 7 if many else 4
    return {
        "hidden_features": 32 if few else 64 if rows < 10_000 else 96,
        "num_bins": 8 if few else 16 if rows < 20_000 else 24,
        "octaves": octaves,
        "dropout": 0.0 if many else 0.1 if rows >= 20_000 else 0.2,
        "cell_dropout": 0.02 if many else 0.3 if rows < 10_000 else 0.1,
    }


def suited_columns_training(rows: int) -> dict[str, Any]:
    """Return default training settings of a model of columns for this many rows."""
    batch = min(64 if rows < 5_000 else 256, rows)
    return {
        "learning_rate": 1e-3 if rows < 2_000 else 5e-3,
        "beta2": 0.98,
        "weight_decay": 0.01,
        "batch_size": batch,
        "steps": min(max(EPOCHS * (rows // batch), 1_000), 4_500),
    }


def suited_settings(rows: int) -> dict[str, Any]:
    """Return default settings of :func:`cubicflow.flows.tabular` for this many training rows.

    >>> suited_settings(300)["hidden_features"], suited_settings(50_000)["hidden_features"]
    (32, 128)
    """
    width = 32 if rows < 2_000 else 64 if rows < 10_000 else 128 if rows < 200_000 else 256
    return {
        "num_layers": 5 if rows < 2_000 else 6 if rows < 200_000 else 10,
        "hidden_features": width,
        "num_bins": 8,
        "dropout": 0.2 if rows < 2_000 else 0.1 if rows < 10_000 else 0.0,
    }


def suited_flow(encoder: FlowEncoder, rows: int, seed: int, settings: Mapping[str, Any]) -> Flow:
    """Return a flow for the encoder's columns. The user's ``settings`` override the defaults for this many rows."""
    chosen = {**suited_settings(rows), **settings}
    with seeded(seed):
        return tabular(encoder.features, context_features=encoder.context_features, **chosen)
