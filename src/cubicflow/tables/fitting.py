"""From a table in a file to a run folder: schema, rows, a flow that suits them, training, test score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cubicflow.flows import Flow, tabular
from cubicflow.nets.draws import seeded
from cubicflow.tables.encoder import TableEncoder
from cubicflow.tables.fitted import SECTION, FittedTable
from cubicflow.tables.inference import TableOptions, infer
from cubicflow.tables.likelihood import ROWS_AT_ONCE, Mean, MeanOfRows, log_likelihood
from cubicflow.tables.source import Missing, Split, open_table
from cubicflow.tables.table_rows import TableRows, load_parts
from cubicflow.training.config import TrainingConfig
from cubicflow.training.loop import FitResult, fit
from cubicflow.training.run_folder import check_folder

# Of training: runs on tables are short, so the rate is above the 5e-4 that suits hundreds of thousands of steps.
SUITED_TRAINING: dict[str, Any] = {"learning_rate": 1e-3}


@dataclass(frozen=True)
class TableFit:
    """A finished fit: the model, and its test score in the data's own units."""

    fit: FitResult
    fitted: FittedTable
    test: Mean


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
    rows = load_parts(found.table, encoder, split, options.missing, found.rows, beside)
    flow = suited_flow(encoder, found.parts["train"], config.seed, settings or {})
    mark, missing = found.table.fingerprint(), Missing(options.missing)
    fitted = FittedTable(flow, found.schema, split, missing, str(table.path.resolve()), mark, found.parts)
    sections = {SECTION: fitted.to_json()}
    how: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "progress": progress}
    result = fit(flow, rows.train, rows.validation, config, run=run, sections=sections, **how)
    return TableFit(result, replace(fitted, flow=result.flow), score_part(result.flow, rows.test))


def score_part(flow: Flow, rows: TableRows) -> Mean:
    """The mean log likelihood of a part of the table."""
    mean = MeanOfRows()
    for first in range(0, rows.num_rows, ROWS_AT_ONCE):
        numbers = rows.plain(first, min(first + ROWS_AT_ONCE, rows.num_rows))
        mean.see(log_likelihood(flow, rows.encoder, numbers), numbers.weights)
    return mean.result()


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
    chosen = {**suited_settings(rows), **settings}
    with seeded(seed):
        return tabular(encoder.features, context_features=encoder.context_features, **chosen)
