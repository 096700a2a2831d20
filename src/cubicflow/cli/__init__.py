"""The command line: one file for each command. Heavy packages are imported only when a command needs them."""

from __future__ import annotations

import importlib
import sys

from cubicflow.extras import need

# Commands in the order of the help. Each command is a function in a file of the same name.
COMMANDS = ("fit", "evaluate", "compare", "score", "sample", "impute", "judge", "plot", "explore", "export", "doctor")


def main() -> None:
    """Run the command line. An invalid command prints one line on standard error and exits with status 2."""
    try:
        typer = need("typer", "the command line")
    except ImportError as error:
        sys.exit(str(error))
    from cubicflow.cli.terminal import clear_errors

    app = typer.Typer(
        name="cubicflow",
        help="Fit densities of tables with cubic-spline flows: exact log likelihoods, exact samples.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(importlib.import_module("cubicflow.cli.doctor").options)
    for name in COMMANDS:
        command = getattr(importlib.import_module(f"cubicflow.cli.{name}"), name)
        app.command(name)(clear_errors()(command))
    app()
