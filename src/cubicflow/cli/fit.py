"""``cubicflow fit DATA -o RUN``."""

from __future__ import annotations

import os
import shlex
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cubicflow.cli.arguments import names, pairs, ranges
from cubicflow.cli.clear_errors import clear_errors
from cubicflow.cli.reading import DATA, Comment, Header
from cubicflow.cli.terminal import say
from cubicflow.tables.kinds import NAMES

MODEL = ("num_layers", "hidden_features", "num_blocks", "num_bins", "dropout")
# Options by the panel of the help that shows them.
of_table, of_model, of_training = (partial(typer.Option, rich_help_panel=p) for p in ("Table", "Model", "Training"))


def fit(
    data: Annotated[str, typer.Argument(help=f"{DATA} Or gaussians or grace-hopper.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The run folder.", metavar="RUN")],
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run, or begin where there is none.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin again in a folder that holds a run.")] = False,
    start: Annotated[
        Path | None, typer.Option(help="Begin from the weights of another run of this table.", metavar="RUN")
    ] = None,
    header: Header = None,
    comment: Comment = None,
    split: Annotated[
        str | None, of_table(help="time:col tests on the latest rows; else one row in ten is drawn.")
    ] = None,
    missing: Annotated[
        str | None,
        of_table(help="Values that are missing: model, or drop such rows, or error. Of a flow error or drop."),
    ] = None,
    drop: Annotated[list[str] | None, of_table(help="Columns to leave out: a,b")] = None,
    context: Annotated[list[str] | None, of_table(help="Columns to condition on: a,b")] = None,
    weights: Annotated[str | None, of_table(help="The column of row weights.")] = None,
    kind: Annotated[
        list[str] | None,
        of_table(
            "--type",
            help=f"col={', '.join(NAMES[:-1])} or {NAMES[-1]}, where the guess is wrong.",
        ),
    ] = None,
    transform: Annotated[list[str] | None, of_table(help="col=log or col=asinh, for heavy tails.")] = None,
    bounds: Annotated[list[str] | None, of_table(help="col=low:high, hard limits; one may be empty.")] = None,
    constraint: Annotated[
        list[str] | None,
        of_table(help="What every sample keeps: 'start <= end', 'a + b = c', 'fixed(a, b)'."),
    ] = None,
    model: Annotated[
        str | None,
        of_model(help="columns, for words, steps and gaps, or flow; by default a flow for real numbers alone."),
    ] = None,
    num_layers: Annotated[int | None, of_model(help="Layers of a flow.")] = None,
    hidden_features: Annotated[int | None, of_model(help="Width of networks.")] = None,
    num_blocks: Annotated[int | None, of_model(help="Blocks of networks.")] = None,
    num_bins: Annotated[int | None, of_model(help="Bins of a spline.")] = None,
    dropout: Annotated[float | None, of_model(help="In the networks.")] = None,
    steps: Annotated[int | None, of_training(help="Of the optimiser.")] = None,
    time_budget: Annotated[float | None, of_training(help="Seconds of training.")] = None,
    batch_size: Annotated[int | None, of_training(help="Of all processes.")] = None,
    learning_rate: Annotated[float | None, of_training(help="Of Adam.")] = None,
    weight_decay: Annotated[float | None, of_training(help="Of AdamW.")] = None,
    validate_every: Annotated[int | None, of_training(help="Steps.")] = None,
    patience: Annotated[int | None, of_training(help="Validations; 0: no end.")] = None,
    precision: Annotated[str | None, of_training(help="tf32, float32, bf16.")] = None,
    device: Annotated[str | None, of_training(help="auto, cpu, cuda, cuda:N.")] = None,
    seed: Annotated[int | None, of_training(help="Of everything random.", min=0, max=2**63 - 1)] = None,
    checkpoint_seconds: Annotated[float | None, of_training(help="Between checkpoints.")] = None,
) -> None:
    """Fit the density of a table and write it to a run folder.

    Example: cubicflow fit penguins.csv -o run

    Columns are typed by looking at all rows; a tenth of the rows is kept for validation, another for the test. What is
    not given is chosen from the data. Several processes: torchrun --nproc-per-node 2 -m cubicflow fit ...
    """
    given = {name: value for name, value in locals().items() if value is not None}
    with clear_errors():
        from cubicflow.tables import Reading, TableOptions, fit_table
        from cubicflow.tables.honest_score import score_lines, score_warnings
        from cubicflow.training import TrainingConfig

        options = TableOptions(
            kinds=pairs("--type", kind or []),
            transforms=pairs("--transform", transform or []),
            bounds=ranges("--bounds", bounds or []),
            context=names(context or []),
            weights=weights,
            drop=names(drop or []),
            missing=missing,
        )
        settings = {name: given[name] for name in MODEL if name in given}
        training = {field.name: given[field.name] for field in fields(TrainingConfig) if field.name in given}
        how: dict[str, Any] = {"model": model, "resume": resume, "overwrite": overwrite, "say": _say}
        how |= {"reading": Reading(header, comment), "split": split, "start": start, "constraints": constraint or []}
        result = fit_table(data, output, options, settings, **how, **training)
        if os.environ.get("RANK", "0") != "0":  # of several processes the first one speaks
            return
        schema = result.fitted.schema
        width = max(len(column.name) for column in schema.columns)
        for column in schema.columns:
            say(f"  {column.name:<{width}}  {column.describe()}")
        say(f"test log likelihood {result.test} over {result.test.rows:,} rows, in the data's own units")
        for line in (*score_lines(result.score, result.train), str(result.used)):
            say(line)
        for warning in score_warnings(result.score, result.train):
            _say(f"warning: {warning}")
        say(f"wrote {output} after {result.fit.steps:,} steps ({result.fit.stopped}). Next:")
        say(f"  cubicflow plot {output}")
        told = "".join(f" --given {column.name}=VALUE" for column in schema.context)
        say(f"  cubicflow sample {output} -n 1000 -o samples.csv{told}")
        say(f"  cubicflow score {output} {shlex.quote(data)} -o scores.csv")


def _say(text: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        say(text, err=True)
