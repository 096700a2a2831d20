"""``cubicflow impute RUN DATA -o OUT``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cubicflow.cli import shared
from cubicflow.cli.terminal import say

STANDARD_OUTPUT = "-"


def impute(
    run: Annotated[Path, typer.Argument(help="Run folder of a model of columns.")],
    data: shared.FittedColumns,
    output: Annotated[
        str, typer.Option("--output", "-o", help="Output file: .csv or .parquet; - for standard output.")
    ],
    draws: Annotated[
        int, typer.Option(help="Number of draws. Several draws go to OUT-01, OUT-02, ...", min=1, max=10_000)
    ] = 1,
    mode: Annotated[
        bool, typer.Option("--mode", help="Fill with the most likely category and the median, not with a draw.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the draws.", min=0, max=2**63 - 1)] = None,
    header: shared.Header = None,
    comment: shared.Comment = None,
    allow_multiline: shared.Multiline = False,
    overwrite: shared.Overwrite = False,
    protect_formulas: shared.ProtectFormulas = False,
    device: shared.Device = None,
) -> None:
    """Fill the missing values of a table, given the other values of each row.

    Other values do not change. The added column 'filled' names the filled columns of each row.

    Example: cubicflow impute run new.csv -o filled.csv

    Example: cubicflow impute run new.csv -o filled.csv --draws 20
    """
    from cubicflow.tables import FittedTable, open_table
    from cubicflow.tables.query import FilledTable, names_of_draws
    from cubicflow.tables.run import CsvStyle, check_output, write_files, write_rows

    if mode and draws > 1:
        raise ValueError("--mode gives the same values in every draw; leave out --draws or --mode")
    if output == STANDARD_OUTPUT and draws > 1:
        raise ValueError("--draws writes one file for each draw; give a file name with -o, not -")
    shared.check_protection(output, protect_formulas=protect_formulas)
    names = names_of_draws(output, draws)
    for name in names:
        check_output(name, overwrite=overwrite)
    fitted = FittedTable.load(run, device)
    table = open_table(data, fitted.reading.with_options(header, comment, allow_multiline))
    shared.say_ignored(fitted.schema, table)
    filled = FilledTable(fitted, table, draws, mode, seed)
    shared.say_remarks(table)
    style = CsvStyle(fitted.decimals(), fitted.reading.notations, protect_formulas)
    if output == STANDARD_OUTPUT:
        write_rows(output, filled.batches(0), style)
    else:
        write_files(((name, filled.batches(draw)) for draw, name in enumerate(names)), style)
    for line in filled.lines():
        say(line, err=True)
