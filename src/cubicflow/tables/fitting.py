"""From a table in a file to a run folder: schema, rows, a flow that suits them, training, test score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from cubicflow.flows import Flow, tabular
from cubicflow.tables.copied_rows import copied_rows
from cubicflow.tables.encoder import TableEncoder
from cubicflow.tables.fitted import SECTION, FittedTable
from cubicflow.tables.honest_score import Score, ScoreOfRows, Used
from cubicflow.tables.independent import IndependentColumns
from cubicflow.tables.inference import TableOptions, infer
from cubicflow.tables.likelihood import ROWS_AT_ONCE, Mean, log_likelihood
from cubicflow.tables.resumed_table import check_same_table
from cubicflow.tables.source import Missing, Split, open_table
from cubicflow.tables.table_rows import TableRows, load_parts
from cubicflow.training.config import TrainingConfig
from cubicflow.training.loop import FitResult, fit
from cubicflow.training.run_folder import check_folder

# Of training: runs on tables are short, so the rate is above the 5e-4 that suits hundreds of thousands of steps.
SUITED_TRAINING: dict[str, Any] = {"learning_rate": 1e-3}
TRAINING_ROWS = 10_000  # that are scored beside the test rows, and that marginals are learned from


@dataclass(frozen=True)
class TableFit:
    """A finished fit: the model, its test score in the data's own units and what that is worth, and the rows used."""

    fit: FitResult
    fitted: FittedTable
    score: Score  # of the test rows
    train: Score  # of training rows, up to ten thousand of them
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
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    say: Callable[[str], None] = lambda _: None,
    **training: Any,
) -> TableFit:
    """Fit a flow to the table at ``data`` and write it to the folder ``run``, as ``cubicflow fit`` does.

    Args:
        options: what the user says about the columns.
        settings: of :func:`cubicflow.flows.tabular`; what is not given suits the number of rows.
        resume, overwrite: what to do where the folder holds a run.
        progress: show it, on standard error.
        say: called with what was found in the table, a line at a time.
        training: settings of :class:`cubicflow.training.TrainingConfig`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("word,size\\n" + "a,0.25\\nb,1.5\\nb,2.75\\n" * 20)
    ...     result = fit_table(f"{folder}/t.csv", f"{folder}/run", steps=5, seed=1, progress=False)
    >>> result.test.rows, [column.describe() for column in result.fitted.schema.columns]
    (6, ['mass of each of 2 values', 'mass per step of 0.01'])
    """
    run, options = Path(run), options or TableOptions()
    config = TrainingConfig.make(**{**SUITED_TRAINING, **training})
    table = open_table(data)
    check_folder(run, may_exist=resume or overwrite)  # before the table is read; opening the run checks again
    split = Split(config.seed)
    beside = run.absolute().parent if run.absolute().parent.is_dir() else None  # where temporary files go
    found = infer(table, options, split, spool=beside)
    encoder = TableEncoder(found.schema)
    parts = ", ".join(f"{count:,} for {name}" for name, count in found.parts.items())
    say(f"{data}: {found.rows:,} rows ({parts}), columns to model: {encoder.features}")
    for note in found.notes:
        say(f"note: {note}")
    for warning in found.warnings:
        say(f"warning: {warning}")
    rows = load_parts(found.table, encoder, split, options.missing, found.rows, beside)
    if copies := copied_rows(rows).said():
        say(f"warning: {copies}")
    flow = suited_flow(encoder, found.parts["train"], config.seed, settings or {})
    mark, missing = found.table.fingerprint(), Missing(options.missing)
    some_rows = evenly(rows.train, TRAINING_ROWS)
    independent = learn_independent(some_rows)
    source = str(table.path.resolve())
    fitted = FittedTable(flow, found.schema, split, missing, source, mark, found.parts, independent)
    if resume and (before := check_same_table(run, fitted.to_json())) is not None:
        # as the run was begun: an older version has none, and another machine may round otherwise
        kept = before.get("independent")
        independent = None if kept is None else IndependentColumns.from_json(kept, found.schema.model)
        fitted = replace(fitted, independent=independent)
    sections = {SECTION: fitted.to_json()}
    how: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "progress": progress}
    result = fit(flow, rows.train, rows.validation, config, run=run, sections=sections, **how)
    test, train = (score_part(result.flow, part, independent) for part in (rows.test, some_rows))
    columns = len(found.schema.columns) - len(found.schema.of_role("dropped"))
    used = Used(found.rows + found.dropped, found.rows, columns, found.gaps)
    return TableFit(result, replace(fitted, flow=result.flow), test, train, used)


def score_part(flow: Flow, rows: TableRows, independent: IndependentColumns | None) -> Score:
    """The mean log likelihood of a part of the table, and that of independent columns."""
    score = ScoreOfRows()
    for first in range(0, rows.num_rows, ROWS_AT_ONCE):
        numbers = rows.plain(first, min(first + ROWS_AT_ONCE, rows.num_rows))
        alone = None if independent is None else independent.log_prob(numbers.y)
        score.see(log_likelihood(flow, rows.encoder, numbers), alone, numbers.weights)
    return score.result()


def evenly(rows: TableRows, most: int) -> TableRows:
    """The rows, or as many of them as that, evenly spaced."""
    if rows.num_rows <= most:
        return rows
    return rows.part(torch.arange(most) * rows.num_rows // most)


def learn_independent(rows: TableRows) -> IndependentColumns | None:
    """The marginals of training rows; None for a single column, which has nothing to depend on."""
    if rows.encoder.features == 1 and not rows.encoder.context_features:
        return None
    numbers = rows.plain(0, rows.num_rows)
    return IndependentColumns.learn(rows.encoder.columns, numbers.y, numbers.weights)


def suited_settings(rows: int) -> dict[str, Any]:
    """Settings of :func:`cubicflow.flows.tabular` for this many training rows.

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


def suited_flow(encoder: TableEncoder, rows: int, seed: int, settings: Mapping[str, Any]) -> Flow:
    """A flow for the encoder's columns. ``settings`` are the user's, and come before those that suit the rows."""
    torch.manual_seed(seed)
    chosen = {**suited_settings(rows), **settings}
    return tabular(encoder.features, context_features=encoder.context_features, **chosen)
