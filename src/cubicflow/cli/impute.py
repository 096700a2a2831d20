"""``cubicflow impute RUN DATA -o OUT``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cubicflow.cli.clear_errors import clear_errors
from cubicflow.cli.reading import Comment, Header
from cubicflow.cli.remarks import say_ignored
from cubicflow.cli.terminal import say
from cubicflow.cli.writing import ProtectFormulas, check_protection

STANDARD_OUTPUT = "-"


def impute(
    run: Annotated[Path, typer.Argument(help="A run folder, of a model of columns.")],
    data: Annotated[str, typer.Argument(help="A table with the columns of the fitted one; - for standard input.")],
    output: Annotated[str, typer.Option("--output", "-o", help=".csv or .parquet; - for standard output.")],
    draws: Annotated[int, typer.Option(help="Files with a draw each: OUT-01, OUT-02, ...", min=1, max=10_000)] = 1,
    mode: Annotated[
        bool, typer.Option("--mode", help="The most likely word and the median of numbers, in place of a draw.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same draws.", min=0, max=2**63 - 1)] = None,
    header: Header = None,
    comment: Comment = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace outputs that exist.")] = False,
    protect_formulas: ProtectFormulas = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:N.")] = None,
) -> None:
    """Fill the missing values of a table, given all that each row holds. Only gaps change; the column 'filled' names
    those of every row.

    Example: cubicflow impute run new.csv -o filled.csv

    Example: cubicflow impute run new.csv -o filled.csv --draws 20
    """
    with clear_errors():
        from cubicflow.tables import FittedTable, open_table
        from cubicflow.tables.asking.filled_table import FilledTable, names_of_draws
        from cubicflow.tables.output import check_output, write_rows

        if mode and draws > 1:
            raise ValueError("--mode fills every gap in one way; leave out --draws, or leave out --mode for draws")
        if output == STANDARD_OUTPUT and draws > 1:
            raise ValueError("--draws writes a file for each draw; give the name of a file with -o")
        check_protection(output, protect_formulas=protect_formulas)
        names = names_of_draws(output, draws)
        for name in names:
            check_output(name, overwrite=overwrite)
        fitted = FittedTable.load(run, device)
        table = open_table(data, fitted.reading.with_options(header, comment))
        say_ignored(fitted.schema, table)
        filled = FilledTable(fitted, table, draws, mode, seed)
        how: dict[str, Any] = {"formats": fitted.reading.formats, "protect_formulas": protect_formulas}
        written: list[str] = []
        try:
            for draw, name in enumerate(names):
                write_rows(name, filled.batches(draw), fitted.decimals(), **how, overwrite=overwrite)
                written.append(name)
        except BaseException:
            for name in written:  # all of the draws, or none
                Path(name).unlink(missing_ok=True)
            raise
        counted = ", ".join(f"{count:,} in {name!r}" for name, count in filled.counts.items())
        say(f"filled {sum(filled.counts.values()):,} missing values{f' ({counted})' if counted else ''}", err=True)
        if filled.left:
            left = ", ".join(f"{count:,} in {name!r}" for name, count in filled.left.items())
            say(f"note: gaps of columns that are not modelled stay: {left}", err=True)
