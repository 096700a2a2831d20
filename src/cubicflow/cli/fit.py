"""``cubicflow fit DATA -o RUN``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cubicflow.cli.arguments import names, pairs, ranges
from cubicflow.cli.clear_errors import clear_errors
from cubicflow.tables.kinds import NAMES

TABLE, MODEL, TRAINING = "Table", "Model", "Training"
OF_MODEL = ("num_layers", "hidden_features", "num_blocks", "num_bins", "dropout")
OF_TRAINING = (
    *("steps", "time_budget", "batch_size", "learning_rate", "weight_decay", "validate_every", "patience"),
    *("precision", "device", "seed", "checkpoint_seconds"),
)


def fit(
    data: Annotated[
        Path,
        typer.Argument(
            help="A .csv, .tsv, .parquet, .npy or .npz file, a folder of .parquet files, or gaussians or grace-hopper."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The run folder.", metavar="RUN")],
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run, or begin where there is none.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin again in a folder that holds a run.")] = False,
    missing: Annotated[
        str, typer.Option(help="Rows that lack a value: error, or drop.", rich_help_panel=TABLE)
    ] = "error",
    drop: Annotated[list[str] | None, typer.Option(help="Columns to leave out: a,b", rich_help_panel=TABLE)] = None,
    context: Annotated[
        list[str] | None, typer.Option(help="Columns to condition on: a,b", rich_help_panel=TABLE)
    ] = None,
    weights: Annotated[str | None, typer.Option(help="The column of row weights.", rich_help_panel=TABLE)] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            help=f"col={', '.join(NAMES[:-1])} or {NAMES[-1]}, where the guess is wrong.",
            rich_help_panel=TABLE,
        ),
    ] = None,
    transform: Annotated[
        list[str] | None, typer.Option(help="col=log or col=asinh, for heavy tails.", rich_help_panel=TABLE)
    ] = None,
    bounds: Annotated[
        list[str] | None, typer.Option(help="col=low:high, hard limits; one may be empty.", rich_help_panel=TABLE)
    ] = None,
    num_layers: Annotated[int | None, typer.Option(help="Layers of the flow.", rich_help_panel=MODEL)] = None,
    hidden_features: Annotated[int | None, typer.Option(help="Width of networks.", rich_help_panel=MODEL)] = None,
    num_blocks: Annotated[int | None, typer.Option(help="Blocks of networks.", rich_help_panel=MODEL)] = None,
    num_bins: Annotated[int | None, typer.Option(help="Bins of a spline.", rich_help_panel=MODEL)] = None,
    dropout: Annotated[float | None, typer.Option(help="In the networks.", rich_help_panel=MODEL)] = None,
    steps: Annotated[int | None, typer.Option(help="Of the optimiser.", rich_help_panel=TRAINING)] = None,
    time_budget: Annotated[float | None, typer.Option(help="Seconds of training.", rich_help_panel=TRAINING)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Of all processes.", rich_help_panel=TRAINING)] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of Adam.", rich_help_panel=TRAINING)] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Of AdamW.", rich_help_panel=TRAINING)] = None,
    validate_every: Annotated[int | None, typer.Option(help="Steps.", rich_help_panel=TRAINING)] = None,
    patience: Annotated[int | None, typer.Option(help="Validations; 0: no end.", rich_help_panel=TRAINING)] = None,
    precision: Annotated[str | None, typer.Option(help="tf32, float32, bf16.", rich_help_panel=TRAINING)] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:N.", rich_help_panel=TRAINING)] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of everything random.", min=0, max=2**63 - 1, rich_help_panel=TRAINING)
    ] = None,
    checkpoint_seconds: Annotated[
        float | None, typer.Option(help="Between checkpoints.", rich_help_panel=TRAINING)
    ] = None,
) -> None:
    """Fit the density of a table and write it to a run folder.

    Example: cubicflow fit penguins.csv -o run --missing drop

    Columns are typed by looking at all rows; a tenth of the rows is kept for validation, another for the test. What is
    not given is chosen from the data. Several processes: torchrun --nproc-per-node 2 -m cubicflow fit ...
    """
    given = {name: value for name, value in locals().items() if value is not None}
    model = {name: given[name] for name in OF_MODEL if name in given}
    training = {name: given[name] for name in OF_TRAINING if name in given}
    with clear_errors():
        from cubicflow.tables import TableOptions, fit_table

        options = TableOptions(
            kinds=pairs("--type", kind or []),
            transforms=pairs("--transform", transform or []),
            bounds=ranges("--bounds", bounds or []),
            context=names(context or []),
            weights=weights,
            drop=names(drop or []),
            missing=missing,
        )
        result = fit_table(data, output, options, model, resume=resume, overwrite=overwrite, say=_say, **training)
        if os.environ.get("RANK", "0") != "0":  # of several processes the first one speaks
            return
        schema = result.fitted.schema
        width = max(len(column.name) for column in schema.columns)
        for column in schema.columns:
            typer.echo(f"  {column.name:<{width}}  {column.describe()}")
        typer.echo(f"test log likelihood {result.test} over {result.test.rows:,} rows, in the data's own units")
        typer.echo(f"wrote {output} after {result.fit.steps:,} steps ({result.fit.stopped}). Next:")
        typer.echo(f"  cubicflow plot {output}")
        told = "".join(f" --given {column.name}=VALUE" for column in schema.context)
        typer.echo(f"  cubicflow sample {output} -n 1000 -o samples.csv{told}")
        typer.echo(f"  cubicflow score {output} {data} -o scores.csv")


def _say(text: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        typer.echo(text, err=True)
