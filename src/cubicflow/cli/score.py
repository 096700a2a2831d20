"""``cubicflow score RUN DATA -o OUT``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from cubicflow.cli.clear_errors import clear_errors
from cubicflow.cli.engine_options import (
    Address,
    BlockRows,
    Engine,
    Keys,
    OnError,
    Resume,
    Workers,
    of_engine,
    refuse,
    say_job,
)
from cubicflow.cli.reading import Comment, Header
from cubicflow.cli.remarks import say_ignored, say_unseen


def score(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[str, typer.Argument(help="A table with the columns of the fitted one; - for standard input.")],
    output: Annotated[
        str,
        typer.Option("--output", "-o", help=".csv, .parquet or .npy; - for standard output; of an engine a folder."),
    ],
    missing: Annotated[
        str | None, typer.Option(help="Rows that lack a value: model, error, or drop, which leaves their score empty.")
    ] = None,
    observed_only: Annotated[
        bool, typer.Option("--observed-only", help="Count the values that are there, and not which are missing.")
    ] = False,
    unseen: Annotated[
        str, typer.Option(help="Values that the fitted table did not have: count them, or error.")
    ] = "count",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.")] = False,
    header: Header = None,
    comment: Comment = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:N.")] = None,
    engine: Engine = None,
    address: Address = None,
    workers: Workers = None,
    block_rows: BlockRows = None,
    on_error: OnError = None,
    resume: Resume = False,
    key: Keys = None,
) -> None:
    """The log likelihood of every row of a table, one line for each row, in its order.

    Example: cubicflow score run new.csv -o scores.csv

    The lowest scores are the rows that surprise the model most.

    Example: cubicflow score run 'lake/*.parquet' -o scores --engine ray
    """
    with clear_errors():
        blockwise = of_engine(
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

            refuse(engine, header=header, comment=comment)
            asked: dict[str, Any] = {"missing": missing, "observed_only": observed_only, "unseen": unseen}
            done = score_files(run, data, output, overwrite=overwrite, device=device, **asked, **blockwise)
            say_job(done, f"{output.rstrip('/')}/{SKIPPED}")
            return
        from cubicflow.tables import FittedTable, open_table
        from cubicflow.tables.output import check_output, write_rows

        check_output(output, overwrite=overwrite)
        fitted, counts = FittedTable.load(run, device), Counter[str]()
        table = open_table(data, fitted.reading.with_options(header, comment))
        say_ignored(fitted.schema, table)
        how: dict[str, Any] = {"observed_only": observed_only, "unseen": unseen, "counts": counts}
        write_rows(output, fitted.score_batches(table, missing, **how), overwrite=overwrite, whole=True)
        say_unseen(counts)
