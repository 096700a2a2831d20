"""``cubicflow score RUN DATA -o OUT``."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from cubicflow.cli import shared


def score(
    run: shared.RunFolder,
    data: shared.FittedColumns,
    output: shared.Output,
    missing: Annotated[
        str | None,
        typer.Option(
            help="Rows with missing values: model, error, or drop (the score stays empty). Default: as in the fit."
        ),
    ] = None,
    observed_only: Annotated[
        bool,
        typer.Option("--observed-only", help="Score only the values of a row, not the fact that others are missing."),
    ] = False,
    unseen: shared.Unseen = "count",
    overwrite: shared.Overwrite = False,
    header: shared.Header = None,
    comment: shared.Comment = None,
    allow_multiline: shared.Multiline = False,
    device: shared.Device = None,
    engine: shared.Engine = None,
    address: shared.Address = None,
    workers: shared.Workers = None,
    block_rows: shared.BlockRows = None,
    on_error: shared.OnError = None,
    resume: shared.Resume = False,
    key: shared.Keys = None,
) -> None:
    """Write the log likelihood of each row of a table, in the order of the rows.

    Rows with the lowest scores are the most unusual for the model.

    Example: cubicflow score run new.csv -o scores.csv

    Example: cubicflow score run 'lake/*.parquet' -o scores --engine ray
    """
    blockwise = shared.job_options(
        engine,
        address=address,
        workers=workers,
        block_rows=block_rows,
        on_error=on_error,
        resume=resume,
        keys=key,
    )
    if engine is not None:
        from cubicflow.clusters import score_files
        from cubicflow.clusters.job_folder import SKIPPED

        shared.refuse(engine, header=header, comment=comment, allow_multiline=allow_multiline)
        options: dict[str, Any] = {"missing": missing, "observed_only": observed_only, "unseen": unseen}
        options |= {"overwrite": overwrite, "device": device, "progress": True}
        result = score_files(run, data, output, **options, **blockwise)
        shared.say_job(result, f"{output.rstrip('/')}/{SKIPPED}")
        shared.say_unseen(result.unseen)
        return
    from cubicflow.tables import FittedTable, open_table
    from cubicflow.tables.run import check_output, write_rows

    check_output(output, overwrite=overwrite)
    fitted, counts = FittedTable.load(run, device), Counter[str]()
    table = open_table(data, fitted.reading.with_options(header, comment, allow_multiline))
    shared.say_ignored(fitted.schema, table)
    scoring: dict[str, Any] = {"observed_only": observed_only, "unseen": unseen, "counts": counts}
    write_rows(output, fitted.score_batches(table, missing, **scoring), overwrite=overwrite, whole=True)
    shared.say_remarks(table)
    shared.say_unseen(counts)
