"""``cubicflow fit DATA -o RUN``."""

from __future__ import annotations

import os
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cubicflow.cli import shared
from cubicflow.cli.arguments import given, names, pairs, ranges
from cubicflow.cli.terminal import say
from cubicflow.tables import KIND_NAMES

# Options for each panel of the help.
table_option, model_option, training_option = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Table", "Model", "Training")
)


def fit(
    data: Annotated[str, typer.Argument(help=f"{shared.DATA} Or a built-in table: gaussians, grace-hopper.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Run folder.", metavar="RUN")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in the folder; start a new run if there is none.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in the folder.")] = False,
    start: Annotated[
        Path | None, typer.Option(help="Start from the weights of another run of this table.", metavar="RUN")
    ] = None,
    header: shared.Header = None,
    comment: shared.Comment = None,
    allow_multiline: shared.Multiline = False,
    split: Annotated[
        str | None,
        table_option(help="time:COLUMN keeps the latest rows for the test. Default: a random tenth of the rows."),
    ] = None,
    missing: Annotated[
        str | None,
        table_option(
            help="Missing values: model, drop (leave out their rows) or error. A flow cannot model them. "
            "Default: model, or error for a flow."
        ),
    ] = None,
    drop: Annotated[list[str] | None, table_option(help="Columns to leave out: a,b")] = None,
    keep: Annotated[
        list[str] | None, table_option(help="Columns to model although they look like identifiers: a,b")
    ] = None,
    context: Annotated[list[str] | None, table_option(help="Columns to condition on: a,b")] = None,
    weights: Annotated[str | None, table_option(help="Column of row weights.")] = None,
    kind: Annotated[
        list[str] | None,
        table_option(
            "--type",
            help="Kind of a column, if the inferred kind is wrong: "
            f"col={', '.join(KIND_NAMES[:-1])} or {KIND_NAMES[-1]}.",
        ),
    ] = None,
    transform: Annotated[
        list[str] | None, table_option(help="Transform of a column with heavy tails: col=log or col=asinh.")
    ] = None,
    bounds: Annotated[
        list[str] | None, table_option(help="Limits of a column: col=low:high. One of the two may be empty.")
    ] = None,
    constraint: Annotated[
        list[str] | None,
        table_option(help="Constraint that every sample satisfies: 'start <= end', 'a + b = c', 'fixed(a, b)'."),
    ] = None,
    model: Annotated[
        str | None,
        model_option(help="Kind of model: columns or flow. Default: chosen for the table."),
    ] = None,
    num_layers: Annotated[int | None, model_option(help="Number of layers of a flow.")] = None,
    hidden_features: Annotated[int | None, model_option(help="Width of the networks.")] = None,
    num_blocks: Annotated[int | None, model_option(help="Number of blocks of a network.")] = None,
    num_bins: Annotated[int | None, model_option(help="Number of bins of a spline.")] = None,
    dropout: Annotated[float | None, model_option(help="Dropout probability in the networks.")] = None,
    steps: Annotated[int | None, training_option(help="Number of optimiser steps.")] = None,
    time_budget: Annotated[float | None, training_option(help="Seconds of training.")] = None,
    batch_size: Annotated[int | None, training_option(help="Rows of a batch, over all processes.")] = None,
    learning_rate: Annotated[float | None, training_option(help="Learning rate of Adam.")] = None,
    weight_decay: Annotated[float | None, training_option(help="Weight decay, as in AdamW.")] = None,
    validate_every: Annotated[int | None, training_option(help="Steps between validations.")] = None,
    patience: Annotated[
        int | None,
        training_option(help="Stop after this many validations without improvement; 0 disables early stopping."),
    ] = None,
    precision: Annotated[
        str | None, training_option(help="Precision of matrix products: tf32, float32 or bf16.")
    ] = None,
    device: Annotated[str | None, training_option(help="Device: auto, cpu, cuda or cuda:N.")] = None,
    seed: Annotated[int | None, training_option(help="Seed of all random numbers.", min=0, max=2**63 - 1)] = None,
    checkpoint_seconds: Annotated[float | None, training_option(help="Seconds between checkpoints.")] = None,
) -> None:
    """Fit the density of a table, and write the model to a run folder.

    The kinds of the columns are inferred from all rows. A tenth of the rows is used for validation, another tenth for
    the test. Settings that are not given are chosen for the table.

    Example: cubicflow fit penguins.csv -o run

    Example, with two processes: torchrun --nproc-per-node 2 -m cubicflow fit penguins.csv -o run
    """
    from cubicflow.tables import Reading, TableOptions, fit_table

    options = TableOptions(
        kinds=pairs("--type", kind or []),
        transforms=pairs("--transform", transform or []),
        bounds=ranges("--bounds", bounds or []),
        context=names(context or []),
        weights=weights,
        drop=names(drop or []),
        keep=names(keep or []),
        missing=missing,
    )
    settings = given(
        num_layers=num_layers,
        hidden_features=hidden_features,
        num_blocks=num_blocks,
        num_bins=num_bins,
        dropout=dropout,
    )
    training = given(
        steps=steps,
        time_budget=time_budget,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        validate_every=validate_every,
        patience=patience,
        precision=precision,
        device=device,
        seed=seed,
        checkpoint_seconds=checkpoint_seconds,
    )
    more: dict[str, Any] = {"model": model, "resume": resume, "overwrite": overwrite, "say": _say}
    more |= {"split": split, "start": start, "constraints": constraint or []}
    more["reading"] = Reading(header, comment, allow_multiline=allow_multiline)
    result = fit_table(data, output, options, settings, **more, **training)
    if os.environ.get("RANK", "0") != "0":  # only the first of several processes prints
        return
    for line in result.lines():
        say(line)
    for warning in result.warnings():
        _say(f"warning: {warning}")
    say(f"wrote {output} after {result.fit.steps:,} steps ({result.fit.stopped}). Next:")
    say(f"  cubicflow explore {output}")
    say(f"  cubicflow plot {output}")
    conditions = "".join(f" --given {column.name}=VALUE" for column in result.fitted.schema.context)
    say(f"  cubicflow sample {output} -n 1000 -o samples.csv{conditions}")
    say(f"  cubicflow score {output} {shlex.quote(data)} -o scores.csv")


def _say(text: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        say(text, err=True)
