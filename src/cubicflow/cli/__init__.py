"""The command line: one file for each command, no numerics, nothing heavy imported before it is needed."""

from __future__ import annotations

import importlib
import sys

# In the order of the help. Each is a function in a file of its own name.
COMMANDS = (
    *("fit", "evaluate", "compare", "score", "sample", "impute", "judge", "plot", "explore", "export", "reproduce"),
    "bench",
    "doctor",
)


def main() -> None:
    """Run the command line; what is wrong with a command is one line on standard error and exit status 2."""
    try:
        import typer
    except ImportError:
        sys.exit("the command line needs some more packages: pip install 'cubicflow[cli]'")
    app = typer.Typer(
        name="cubicflow",
        help="Cubic-spline flows: densities of tables, exact log likelihoods, exact samples.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for name in COMMANDS:
        app.command(name)(getattr(importlib.import_module(f"cubicflow.cli.{name}"), name))
    app()
