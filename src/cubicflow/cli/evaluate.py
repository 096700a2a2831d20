"""``cubicflow evaluate RUN DATA``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from cubicflow.cli.clear_errors import clear_errors
from cubicflow.cli.remarks import say_ignored, say_unseen


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[Path, typer.Argument(help="A table with the columns of the fitted one.")],
    missing: Annotated[str | None, typer.Option(help="Rows that lack a value: model, drop or error.")] = None,
    unseen: Annotated[
        str, typer.Option(help="Values that the fitted table did not have: count them, or error.")
    ] = "count",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:N.")] = None,
) -> None:
    """The mean log likelihood of a table, ± 2 standard errors, in nats and in the data's own units.

    Example: cubicflow evaluate run new.csv

    On the very file that the model was fitted to, training, validation and test rows are told apart.
    """
    with clear_errors():
        from cubicflow.tables import FittedTable, open_table
        from cubicflow.tables.likelihood import MeanOfRows
        from cubicflow.tables.source import PARTS

        fitted, table = FittedTable.load(run, device), open_table(data)
        parts = [MeanOfRows() for _ in PARTS]
        whole, counts = MeanOfRows(), Counter[str]()
        say_ignored(fitted.schema, table)
        for scores in fitted.score_table(table, missing, weights=True, unseen=unseen):
            counts.update(scores.unseen)
            whole.see(scores.log_likelihood, scores.weights)
            for i, part in enumerate(parts):
                chosen = scores.parts == i
                part.see(scores.log_likelihood[chosen], None if scores.weights is None else scores.weights[chosen])
        if not whole.rows:
            raise ValueError(f"{data}: the table has no complete rows")
        if not whole.result().weight:
            raise ValueError(f"{data}: there is nothing to score: every row has weight 0")
        say_unseen(counts)
        width = max(len(column.name) for column in fitted.schema.columns)
        for column in fitted.schema.columns:
            typer.echo(f"  {column.name:<{width}}  {column.describe()}")
        if not fitted.is_source(table):
            typer.echo(f"log likelihood {whole.result()} over {whole.rows:,} rows")
            return
        typer.echo("this is the file that the model was fitted to; only its test rows are new to the model")
        for name, part in zip(PARTS, parts, strict=True):
            typer.echo(f"{name:<10} log likelihood {part.result()} over {part.rows:,} rows")
