"""What several commands share: arguments, options and notes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubicflow.advice import Advice
from cubicflow.cli.terminal import say

if TYPE_CHECKING:
    from cubicflow.clusters import JobResult
    from cubicflow.tables import Schema, Table

# --- what is read ---

DATA = (
    "Table: a .csv, .tsv, .jsonl, .parquet, .feather, .arrow, .xlsx, .npy or .npz file, a folder of .parquet files, a "
    "URL, duckdb:FILE?query=SQL, sqlite:FILE?query=SQL, or - for standard input."
)
RunFolder = Annotated[Path, typer.Argument(help="Run folder.")]
FittedColumns = Annotated[str, typer.Argument(help="Table with the columns of the fitted table; - for standard input.")]
Header = Annotated[
    str | None,
    typer.Option(
        help="Number of the row with column names, counted from 0; a range such as 0-1; or none.",
        rich_help_panel="Table",
    ),
]
Comment = Annotated[
    str | None, typer.Option(help="Text at the start of comment lines, such as #.", rich_help_panel="Table")
]
Multiline = Annotated[
    bool,
    typer.Option("--allow-multiline", help="Accept line breaks in quoted text of a CSV file.", rich_help_panel="Table"),
]
Missing = Annotated[
    str | None, typer.Option(help="Rows with missing values: model, drop or error. Default: as in the fit.")
]
Unseen = Annotated[
    str,
    typer.Option(
        help="Values that are not in the fitted table: count (with the probability of unseen values) or error."
    ),
]
Device = Annotated[str | None, typer.Option(help="Device: cpu, cuda or cuda:N.")]

# --- what is written ---

Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        help="Output file: .csv, .parquet or .npy; - for standard output. With --engine: output folder.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")]
ProtectFormulas = Annotated[
    bool,
    typer.Option("--protect-formulas", help="Put an apostrophe before text that a spreadsheet would run as a formula."),
]


def check_protection(output: str, *, protect_formulas: bool) -> None:
    """Raise ValueError if the option is used for a file that is not CSV.

    >>> check_protection("rows.csv", protect_formulas=True)
    """
    if protect_formulas and output != "-" and not output.lower().endswith(".csv"):
        raise ValueError(f"--protect-formulas needs a .csv file or standard output, got {output}; leave it out")


# --- rows in blocks, in one process or on a cluster ---

_option = partial(typer.Option, rich_help_panel="Many rows")
Engine = Annotated[
    str | None,
    _option(help="Process rows in blocks: local (threads of this process) or ray (workers of a Ray cluster)."),
]
Address = Annotated[
    str | None,
    _option(help="Address of the Ray cluster: auto, HOST:PORT or ray://HOST:PORT. Default: start one on this machine."),
]
Workers = Annotated[int | None, _option(help="Number of workers. Default: one for each core, or each GPU.", min=1)]
BlockRows = Annotated[int | None, _option(help="Rows of a block, and of an output file. Default: 131,072.", min=1)]
OnError = Annotated[str | None, _option(help="Bad files and rows: stop, or skip (list them in a file). Default: stop.")]
Resume = Annotated[
    bool, _option("--resume", help="Continue the job in the output folder; start a new one if there is none.")
]
Keys = Annotated[
    list[str] | None, _option("--key", help="Column to copy to the output next to the scores. Repeat for several.")
]


def job_options(engine: str | None, **given: Any) -> dict[str, Any]:
    """Return the engine and the options of a job that are set; raise ValueError for options without an engine.

    >>> job_options("ray", workers=2, address=None)
    {'engine': 'ray', 'workers': 2}
    """
    options = {name: value for name, value in given.items() if value not in (None, False, [])}
    if engine is None and options:
        option = "key" if "keys" in options else next(iter(options)).replace("_", "-")
        raise ValueError(f"--{option} needs an engine; choose one with --engine local or --engine ray")
    return {"engine": engine, **options}


def refuse(engine: str, **given: Any) -> None:
    """Raise ValueError for options that cannot be combined with an engine."""
    for name, value in given.items():
        if value not in (None, False):
            raise ValueError(f"--{name.replace('_', '-')} cannot be combined with --engine {engine}; leave it out")


def say_job(result: JobResult, kept: str | None = None) -> None:
    """Print the notes of a job on standard error. ``kept`` is the file that lists skipped files and rows."""
    for line in result.lines(kept):
        say(line, err=True)


# --- notes on a table that differs from the fitted table ---


def say_ignored(schema: Schema, table: Table) -> None:
    """Print a note about columns that are not in the fitted table. Raises TableError if a fitted column is missing."""
    schema.check(table, weights=False)
    if new := schema.new_columns(table):
        from cubicflow.tables import some

        say(f"note: the fitted table had no column {some(new)}; it is ignored", err=True)


def say_remarks(table: Table) -> None:
    """Print notes on how a table was read, such as the number of its empty lines. The rows must have been read."""
    for remark in table.remarks:
        say(Advice.after("note: ", remark), err=True)


def say_unseen(counts: Mapping[str, int]) -> None:
    """Print a note about values that no training row had, with their number in each column."""
    if counts:
        found = ", ".join(f"{count:,} in {name!r}" for name, count in counts.items())
        say(
            f"note: {sum(counts.values()):,} values are not in the fitted table ({found}); they get the probability "
            "that is reserved for unseen values",
            err=True,
        )
