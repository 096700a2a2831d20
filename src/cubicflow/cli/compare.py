"""``cubicflow compare RUN RUN DATA``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cubicflow.cli import shared
from cubicflow.cli.terminal import say


def compare(
    first: Annotated[Path, typer.Argument(help="First run folder.", metavar="RUN")],
    second: Annotated[Path, typer.Argument(help="Second run folder.", metavar="RUN")],
    data: Annotated[str, typer.Argument(help="Table with the columns of both fitted tables.")],
    missing: shared.Missing = None,
    header: shared.Header = None,
    comment: shared.Comment = None,
    allow_multiline: shared.Multiline = False,
    device: shared.Device = None,
) -> None:
    """Compare two models on a table: the paired difference of log likelihood per row, ± 2 standard errors.

    If a model was fitted to this file, only the test rows are compared.

    Example: cubicflow compare run1 run2 new.csv
    """
    from cubicflow.tables import FittedTable, open_table
    from cubicflow.tables.run import compare_runs

    models = FittedTable.load(first, device), FittedTable.load(second, device)
    table = open_table(data, models[0].reading.with_options(header, comment, allow_multiline))
    result = compare_runs(*models, table, missing)
    shared.say_remarks(table)
    for line in result.lines(first, second):
        say(line)
