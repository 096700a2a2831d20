"""``cubicflow judge RUN DATA`` and ``cubicflow judge REAL SAMPLED``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cubicflow.advice import Advice
from cubicflow.cli import shared
from cubicflow.cli.arguments import names
from cubicflow.cli.terminal import say

STANDARD_OUTPUT = "-"


def judge(
    first: Annotated[str, typer.Argument(help="Run folder, or table of real rows.", metavar="RUN|REAL")],
    second: Annotated[
        str,
        typer.Argument(
            help="With a run: table of real rows that the run was not fitted to. Otherwise: table of sampled rows.",
            metavar="DATA|SAMPLED",
        ),
    ],
    train: Annotated[
        str | None,
        typer.Option(help="Table of training rows. Default with a run: the fitted file, if it still exists."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Output .json file; - for standard output. Default with a run: RUN/judge.json."
        ),
    ] = None,
    words: Annotated[
        list[str] | None, typer.Option(help="Columns of numbers to treat as categories; only with two tables.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Columns to leave out; only with two tables.")] = None,
    missing: Annotated[
        str | None,
        typer.Option(help="Rows with missing values: model, drop or error; only with a run. Default: as in the fit."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the samples and of the classifier.", min=0, max=2**32 - 1)] = 0,
    overwrite: shared.Overwrite = False,
    header: shared.Header = None,
    comment: shared.Comment = None,
    allow_multiline: shared.Multiline = False,
    device: shared.Device = None,
) -> None:
    """Judge the quality of samples: a classifier's AUC, errors of columns and pairs, copies, contradictions.

    Example: cubicflow judge run test.csv

    Example: cubicflow judge real.csv sampled.csv --train train.csv
    """
    from cubicflow.flows.serialization import CONFIG_FILE
    from cubicflow.tables import FittedTable, Reading, open_table
    from cubicflow.tables.judging import JUDGE_FILE, judge_files, judge_run, judgement_text, write_judgement
    from cubicflow.tables.read import is_path
    from cubicflow.tables.run import check_file, is_own

    run = Path(first) if is_path(first) and (Path(first) / CONFIG_FILE).is_file() else None
    if output is None and run is not None:
        output = str(run / JUDGE_FILE)
    if output not in (None, STANDARD_OUTPUT):
        own = run is not None and is_own(run, JUDGE_FILE, Path(output))
        check_file(output, (".json",), overwrite=overwrite or own)
    if run is not None:
        if words or drop:
            raise ValueError("--words and --drop need two tables, not a run; leave them out")
        fitted = FittedTable.load(run, device)
        reading = fitted.reading.with_options(header, comment, allow_multiline)
        fitted = replace(fitted, reading=reading)
        rows = None if train is None else open_table(train, reading)
        found = judge_run(fitted, open_table(second, reading), rows, missing=missing, seed=seed)
    else:
        if missing is not None:
            raise ValueError("--missing needs a run, but two tables are given; leave out --missing")
        options: dict[str, Any] = {"words": names(words or []), "drop": names(drop or []), "seed": seed}
        options["reading"] = Reading(header, comment, allow_multiline=allow_multiline)
        found = judge_files(first, second, train, **options)
    for note in found.notes:
        say(Advice.after("note: ", note), err=True)
    if found.closeness is None:
        say("note: to look for copies of training rows, give the training rows with --train", err=True)
    if output == STANDARD_OUTPUT:
        typer.echo(judgement_text(found, run), nl=False)
        return
    lines = [("", "samples", "real rows"), *found.lines()]
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    for what, ours, new in lines:
        say(f"{what:<{widths[0]}}  {ours:>{widths[1]}}  {new:>{widths[2]}}")
    for remark in found.worst():
        say(remark)
    say(found.verdict())
    if output is not None:
        write_judgement(Path(output), found, run)
        say(f"wrote {output}")
