"""``cubicflow export RUN FILE``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cubicflow.cli.clear_errors import clear_errors
from cubicflow.cli.terminal import say


def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    file: Annotated[Path, typer.Argument(help=".onnx, or .pt2 for torch.export.load.")],
    sampler: Annotated[
        bool, typer.Option("--sampler", help="Samples from given noise, rather than log densities of given rows.")
    ] = False,
    precision: Annotated[
        str, typer.Option(help="float32, or float64, which gives the scores of cubicflow score to 12 digits.")
    ] = "float32",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")] = False,
) -> None:
    """A model as a graph in one file, for programs without cubicflow; of a table with the encoding of its columns,
    in a .json file beside it.

    Example: cubicflow export run model.onnx

    Example: cubicflow export run sampler.onnx --sampler

    Example: cubicflow export run model.onnx --precision float64
    """
    with clear_errors():
        from cubicflow.export import export_run

        for path in export_run(run, file, sampler=sampler, precision=precision, overwrite=overwrite):
            say(f"wrote {path}")
