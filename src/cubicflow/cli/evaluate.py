"""``cubicflow evaluate RUN DATA``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cubicflow.cli import shared
from cubicflow.cli.terminal import say
from cubicflow.files import write_atomically


def evaluate(
    run: shared.RunFolder,
    data: shared.FittedColumns,
    missing: shared.Missing = None,
    unseen: shared.Unseen = "count",
    header: shared.Header = None,
    comment: shared.Comment = None,
    allow_multiline: shared.Multiline = False,
    device: shared.Device = None,
    engine: shared.Engine = None,
    address: shared.Address = None,
    workers: shared.Workers = None,
    block_rows: shared.BlockRows = None,
    on_error: shared.OnError = None,
    skipped: Annotated[
        str | None,
        typer.Option(help="New .jsonl file that lists skipped files and rows.", rich_help_panel="Many rows"),
    ] = None,
) -> None:
    """Print the mean log likelihood of a table, ± 2 standard errors, in nats and in the data's own units.

    The mean log likelihood of a model with independent columns is printed for comparison. For the file that the model
    was fitted to, training, validation and test rows are reported separately.

    Example: cubicflow evaluate run new.csv
    """
    from cubicflow.tables import FittedTable, open_table
    from cubicflow.tables.run import score_parts

    job = {"address": address, "workers": workers, "block_rows": block_rows, "on_error": on_error}
    blockwise = shared.job_options(engine, **job)
    if (on_error == "skip") != (skipped is not None):
        raise ValueError("--on-error skip and --skipped FILE go together: the file lists skipped files and rows")
    if skipped is not None and Path(skipped).exists():
        raise ValueError(f"{skipped} exists already; choose another name for --skipped")
    if engine is None:
        fitted = FittedTable.load(run, device)
        table = open_table(data, fitted.reading.with_options(header, comment, allow_multiline))
        shared.say_ignored(fitted.schema, table)
        scored = score_parts(fitted, table, missing, unseen=unseen)
        shared.say_remarks(table)
        is_source = fitted.is_source(table)
    else:
        from cubicflow.clusters import evaluate_files
        from cubicflow.clusters.job_folder import skipped_lines

        shared.refuse(engine, header=header, comment=comment, allow_multiline=allow_multiline)
        fitted = FittedTable.load(run, "cpu")
        options: dict[str, Any] = {"missing": missing, "unseen": unseen, "device": device, "progress": True}
        scored, is_source, result = evaluate_files(fitted, data, **options, **blockwise)
        if result.skipped and skipped is not None:
            write_atomically(Path(skipped), skipped_lines(result.skipped))
        shared.say_job(result, skipped)
    whole = scored.whole.model
    if not whole.rows:
        raise ValueError(f"{data}: the table has no complete rows; give at least one row without missing values")
    if not whole.weight:
        raise ValueError(f"{data}: every row has weight 0, so there is no mean; give some rows a positive weight")
    shared.say_unseen(scored.unseen)
    for line in (*fitted.schema.lines(), *scored.lines(is_source=is_source)):
        say(line)
    for warning in scored.warnings(is_source=is_source):
        say(f"warning: {warning}", err=True)
