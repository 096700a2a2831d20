"""``cubicflow judge RUN DATA`` and ``cubicflow judge REAL SAMPLED``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cubicflow.cli.arguments import names
from cubicflow.cli.clear_errors import clear_errors
from cubicflow.cli.reading import Comment, Header
from cubicflow.cli.terminal import say

STANDARD_OUTPUT = "-"


def judge(
    first: Annotated[str, typer.Argument(help="A run folder, or a table of real rows.", metavar="RUN|REAL")],
    second: Annotated[
        str,
        typer.Argument(
            help="Of a run: real rows that it was not fitted to. Else: sampled rows.", metavar="DATA|SAMPLED"
        ),
    ],
    train: Annotated[
        str | None,
        typer.Option(help="The rows the model was fitted to. Of a run, else the fitted file, where it is still there."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="A .json file, - for standard output. Of a run, else judge.json in it."),
    ] = None,
    words: Annotated[list[str] | None, typer.Option(help="Columns whose numbers are names; of two tables.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Columns to leave out; of two tables.")] = None,
    missing: Annotated[
        str | None, typer.Option(help="Of a run, rows that lack a value: model, drop or error. Two tables keep them.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the samples and of the classifier.", min=0, max=2**32 - 1)] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.")] = False,
    header: Header = None,
    comment: Comment = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:N.")] = None,
) -> None:
    """How good are the samples? A classifier's AUC, errors of columns and pairs, copies, contradictions.

    Example: cubicflow judge run test.csv

    Example: cubicflow judge real.csv sampled.csv --train train.csv
    """
    with clear_errors():
        from cubicflow.flows.serialization import CONFIG_FILE
        from cubicflow.tables import FittedTable, Reading, open_table
        from cubicflow.tables.judging.judge_file import JUDGE_FILE, judgement_text, write_judgement
        from cubicflow.tables.judging.judged_rows import judge_files, judge_run
        from cubicflow.tables.output import check_free

        run = Path(first) if (Path(first) / CONFIG_FILE).is_file() else None
        if output is None and run is not None:
            output = str(run / JUDGE_FILE)
        if output not in (None, STANDARD_OUTPUT):
            check_free(output, (".json",), overwrite=overwrite)
        if run is not None:
            if words or drop:
                raise ValueError("--words and --drop are for two tables; a run knows its columns")
            fitted = FittedTable.load(run, device)
            reading = fitted.reading.with_options(header, comment)
            rows = None if train is None else open_table(train, reading)
            found = judge_run(fitted, open_table(second, reading), rows, missing=missing, seed=seed)
        else:
            if missing is not None:
                raise ValueError("--missing is for a run; of two tables, rows that lack a value are judged as they are")
            how: dict[str, Any] = {"words": names(words or []), "drop": names(drop or []), "seed": seed}
            found = judge_files(first, second, train, **how, reading=Reading(header, comment))
        for note in found.notes:
            say(f"note: {note}", err=True)
        if found.closeness is None:
            say("note: give the training rows with --train", err=True)
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
