"""Options of every command that reads a table."""

from __future__ import annotations

from typing import Annotated

import typer

DATA = (
    "A .csv, .tsv, .jsonl, .parquet, .feather, .arrow, .xlsx, .npy or .npz file, a folder of .parquet files, a URL, "
    "duckdb:FILE?query=SQL, sqlite:FILE?query=SQL, or - for standard input."
)
Header = Annotated[
    str | None,
    typer.Option(help="The row of the names, from 0, or rows such as 0-1, or none.", rich_help_panel="Table"),
]
Comment = Annotated[
    str | None, typer.Option(help="What lines of remarks begin with, such as #.", rich_help_panel="Table")
]
