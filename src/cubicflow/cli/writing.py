"""Options of commands that write files."""

from __future__ import annotations

from typing import Annotated

import typer

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
