"""``cubicflow --version``. Torch is not imported: its version is in the metadata of its installation."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from cubicflow import __version__


def print_version(wanted: bool) -> None:
    """Print the versions of cubicflow, torch and Python, and exit, if they are wanted."""
    if not wanted:
        return
    try:
        torch = f"torch {installed_version('torch')}"
    except PackageNotFoundError:
        torch = "no torch"
    typer.echo(f"cubicflow {__version__}, {torch}, Python {platform.python_version()}")
    raise typer.Exit


def version(
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=print_version,
            is_eager=True,
            help="Print the versions of cubicflow, torch and Python.",
        ),
    ] = False,
) -> None:
    """Options of the command line itself, before the name of a command."""
