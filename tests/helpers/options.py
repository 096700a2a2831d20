"""The option that the command line would show for the last advice of an error."""

from __future__ import annotations

from cubicflow.advice import AdvisedError
from cubicflow.cli.terminal import as_options


def option_of(error: AdvisedError) -> str | None:
    """Return the options at the end of the command line's message, or None if the error has no arguments."""
    start = f"{error.advice.message} with "
    return as_options(error.advice).removeprefix(start) if error.advice.arguments else None


def message_with_options(error: AdvisedError) -> str:
    """Return the message of the command line."""
    return as_options(error.advice)
