"""``cubicflow compare RUN RUN DATA``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from cubicflow.cli.clear_errors import clear_errors
from cubicflow.cli.reading import Comment, Header
from cubicflow.cli.terminal import say


def compare(
    first: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
    second: Annotated[Path, typer.Argument(help="Another run folder.", metavar="RUN")],
    data: Annotated[str, typer.Argument(help="A table that fits both.")],
    missing: Annotated[str | None, typer.Option(help="Rows that lack a value: model, drop or error.")] = None,
    header: Header = None,
    comment: Comment = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:N.")] = None,
) -> None:
    """Which of two models fits a table better: the paired difference per row, ± 2 standard errors.

    Example: cubicflow compare run1 run2 new.csv

    On a file that a model was fitted to, only its test rows are compared.
    """
    with clear_errors():
        from cubicflow.tables import FittedTable, open_table
        from cubicflow.tables.comparing import compare_runs

        models = FittedTable.load(first, device), FittedTable.load(second, device)
        result = compare_runs(*models, open_table(data, models[0].reading.with_options(header, comment)), missing)
        if result.held_out:
            say("a model was fitted to this file, so only test rows are compared")
        say(f"{first}: {result.first}")
        say(f"{second}: {result.second}")
        gap = result.difference
        say(f"difference, second minus first: {gap} over {gap.rows:,} rows")
        if math.isnan(gap.error):
            say("fewer than two rows cannot tell which is better")
        elif abs(gap.mean) <= gap.error:
            say("neither is better beyond the error")
        else:
            say(f"{second if gap.mean > 0 else first} is better")
