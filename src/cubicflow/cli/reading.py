"""Arguments and options that several commands share: the run, the table, and how to read it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
