"""``cubicflow plot RUN``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cubicflow.cli.clear_errors import clear_errors
from cubicflow.cli.reading import Comment, Header
from cubicflow.cli.terminal import say


def plot(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[str | None, typer.Option(help="The table to compare samples with; else the fitted one.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A folder for the pictures; else plots in the run folder.")
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows of data and of samples to draw.", min=10, max=1_000_000)] = 5000,
    seed: Annotated[int, typer.Option(help="Of the samples.", min=0, max=2**63 - 1)] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace pictures that exist.")] = False,
    header: Header = None,
    comment: Comment = None,
) -> None:
    """Pictures of a fit, as PNG and in one HTML page: how good the fit is, training, samples against data.

    Example: cubicflow plot run
    """
    with clear_errors():
        from cubicflow.plots.run_report import draw_report

        folder = run / "plots" if output is None else output
        how: dict[str, Any] = {"rows": rows, "seed": seed, "overwrite": overwrite}
        page = draw_report(run, data, folder, **how, header=header, comment=comment)
        say(f"wrote {page}")
