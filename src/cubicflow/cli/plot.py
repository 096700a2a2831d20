"""``cubicflow plot RUN``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cubicflow.cli import shared
from cubicflow.cli.terminal import say


def plot(
    run: shared.RunFolder,
    data: Annotated[
        str | None, typer.Option(help="Table to compare the samples with. Default: the fitted table.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for the pictures. Default: RUN/plots.")
    ] = None,
    rows: Annotated[
        int, typer.Option(help="Number of table rows and of samples to plot.", min=10, max=1_000_000)
    ] = 5000,
    seed: Annotated[int, typer.Option(help="Seed of the samples.", min=0, max=2**63 - 1)] = 0,
    overwrite: shared.Overwrite = False,
    header: shared.Header = None,
    comment: shared.Comment = None,
    allow_multiline: shared.Multiline = False,
) -> None:
    """Plot a fit: its scores, the training curve, and samples against data, as PNG files and one HTML page.

    Example: cubicflow plot run
    """
    from cubicflow.plots.report import PLOTS, draw_report

    folder = run / PLOTS if output is None else output
    options: dict[str, Any] = {"rows": rows, "seed": seed, "overwrite": overwrite}
    options |= {"header": header, "comment": comment, "allow_multiline": allow_multiline}
    page = draw_report(run, data, folder, **options)
    say(f"wrote {page}")
