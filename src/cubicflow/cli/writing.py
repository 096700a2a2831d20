"""The option of commands that write text into CSV files."""

from __future__ import annotations

from typing import Annotated

import typer

ProtectFormulas = Annotated[
    bool, typer.Option("--protect-formulas", help="An apostrophe before texts that a spreadsheet would calculate.")
]


def check_protection(output: str, *, protect_formulas: bool) -> None:
    """Refuse the option for files that no spreadsheet reads as text.

    >>> check_protection("rows.csv", protect_formulas=True)
    """
    if protect_formulas and output != "-" and not output.lower().endswith(".csv"):
        raise ValueError(f"--protect-formulas is for .csv files and standard output, got {output}; leave it out")
