"""``cubicflow score RUN DATA -o OUT``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from cubicflow.cli.clear_errors import clear_errors
from cubicflow.cli.remarks import say_ignored, say_unseen


def score(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[Path, typer.Argument(help="A table with the columns of the fitted one.")],
    output: Annotated[str, typer.Option("--output", "-o", help=".csv, .parquet or .npy; - for standard output.")],
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
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:N.")] = None,
) -> None:
    """The log likelihood of every row of a table, one line for each row, in its order.

    Example: cubicflow score run new.csv -o scores.csv

    The lowest scores are the rows that surprise the model most.
    """
    with clear_errors():
        from cubicflow.tables import FittedTable, open_table
        from cubicflow.tables.output import check_output, write_rows

        check_output(output, overwrite=overwrite)
        fitted, table, counts = FittedTable.load(run, device), open_table(data), Counter[str]()
        say_ignored(fitted.schema, table)
        how: dict[str, Any] = {"observed_only": observed_only, "unseen": unseen, "counts": counts}
        write_rows(output, fitted.score_batches(table, missing, **how), overwrite=overwrite)
        say_unseen(counts)
