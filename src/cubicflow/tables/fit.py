"""From a table in a file to a run folder: schema, rows, flow, training, test score."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cubicflow.flows import Flow
from cubicflow.flows.serialization import CONFIG_FILE
from cubicflow.tables.encoder import TableEncoder
from cubicflow.tables.fit_rows import TableRows, load_parts
from cubicflow.tables.fitted import SECTION, section
from cubicflow.tables.infer import infer
from cubicflow.tables.options import TableOptions
from cubicflow.tables.recipe import suited_flow
from cubicflow.tables.scoring import ROWS_AT_ONCE, log_likelihood
from cubicflow.tables.source import open_table
from cubicflow.tables.splits import Split
from cubicflow.tables.summary import Mean, MeanOfRows
from cubicflow.training.config import TrainingConfig
from cubicflow.training.errors import RunFolderError
from cubicflow.training.loop import FitResult, fit
from cubicflow.training.run_folder import HARMLESS


@dataclass(frozen=True)
class TableFit:
    """A finished fit: the test score in the data's own units, and what every column counts in it."""

    fit: FitResult
    test: Mean
    statements: dict[str, str]
    given: str  # the options that a conditional model needs when it is sampled


def fit_table(
    data: Path,
    run: Path,
    options: TableOptions,
    config: TrainingConfig,
    settings: dict[str, Any],
    *,
    resume: bool = False,
    overwrite: bool = False,
    say: Callable[[str], None],
) -> TableFit:
    """Fit a flow to the table at ``data`` and write it to the folder ``run``."""
    table = open_table(data)
    check_folder(run, may_exist=resume or overwrite)
    split = Split(config.seed)
    found = infer(table, options, split)
    encoder = TableEncoder(found.schema)
    parts = ", ".join(f"{count:,} for {name}" for name, count in found.parts.items())
    say(f"{data}: {found.rows:,} rows ({parts}), columns to model: {encoder.features}")
    for note in found.notes:
        say(f"note: {note}")
    spool = run.absolute().parent / f".{run.name}.rows.{os.getpid()}"
    rows = load_parts(table, encoder, split, options.missing, found.rows, spool)
    flow = suited_flow(encoder, found.parts["train"], config.seed, settings)
    sections = {SECTION: section(found, table, split, options.missing)}
    result = fit(
        flow, rows.train, rows.validation, config, run=run, resume=resume, overwrite=overwrite, sections=sections
    )
    statements = {column.name: column.statement() for column in found.schema.columns}
    given = "".join(f" --given {column.name}=VALUE" for column in found.schema.context)
    return TableFit(result, score_part(result.flow, rows.test), statements, given)


def check_folder(run: Path, *, may_exist: bool) -> None:
    """Refuse a folder that no run can begin in, before a table is read for it. Opening the run checks again."""
    if run.exists() and not run.is_dir():
        raise RunFolderError(f"{run} is a file; choose a folder for the run")
    if not run.is_dir():
        return
    there = (run / CONFIG_FILE).exists()
    if there and not may_exist:
        raise RunFolderError(
            f"{run} already holds a run: continue it with --resume, begin again with --overwrite, or choose another "
            "folder"
        )
    foreign = sorted(path.name for path in run.iterdir() if path.name not in HARMLESS)
    if foreign and not there:
        raise RunFolderError(
            f"{run} is not empty and holds no run ({', '.join(foreign[:3])}); choose a new or empty folder"
        )


def score_part(flow: Flow, rows: TableRows) -> Mean:
    """The mean log likelihood of a part of the table."""
    mean = MeanOfRows()
    for first in range(0, rows.num_rows, ROWS_AT_ONCE):
        numbers = rows.plain(first, min(first + ROWS_AT_ONCE, rows.num_rows))
        mean.see(log_likelihood(flow, rows.encoder, numbers), numbers.weights)
    return mean.result()
