"""``cubicflow export RUN FILE``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cubicflow.cli import shared
from cubicflow.cli.terminal import say


def export(
    run: shared.RunFolder,
    file: Annotated[Path, typer.Argument(help="Output file: .onnx, or .pt2 for torch.export.load.")],
    sampler: Annotated[
        bool, typer.Option("--sampler", help="Export the sampler (noise to rows) instead of the log density of rows.")
    ] = False,
    precision: Annotated[str, typer.Option(help="float32, or float64, as precise as cubicflow score.")] = "float32",
    overwrite: shared.Overwrite = False,
) -> None:
    """Export a model as a graph in one file, for programs without cubicflow.

    For a model of a table, the encoding of the columns is written to a .json file next to the output file.

    Example: cubicflow export run model.onnx

    Example: cubicflow export run sampler.onnx --sampler

    Example: cubicflow export run model.onnx --precision float64
    """
    from cubicflow.export import export_model

    for path in export_model(run, file, sampler=sampler, precision=precision, overwrite=overwrite):
        say(f"wrote {path}")
