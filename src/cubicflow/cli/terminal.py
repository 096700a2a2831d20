"""What commands write: lines, errors as one line without a traceback, arguments of Python's functions as options.

Control characters in names of columns and files are escaped: a terminal would execute them.
"""

from __future__ import annotations

import os
import shlex
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from cubicflow.advice import Advice, alternatives

# Unicode categories of characters that control a terminal or the direction of text: controls, formats, surrogates, and
# line and paragraph separators.
ESCAPED = ("Cc", "Cf", "Cs", "Zl", "Zp")
OTHERWISE_NAMED = {"kinds": "type", "transforms": "transform", "constraints": "constraint"}
VALUE = "VALUE"  # stands for a value that the user chooses
INTERRUPTED = 130  # exit status that shells report for a process ended by Ctrl-C
REFUSED = 2  # exit status of an invalid command or input


def escaped(text: str) -> str:
    """Return the text with control characters replaced by Python's escape sequences.

    >>> escaped("size \x1b[31m(cm)\\u202e"), escaped("größe, 体重")
    ('size \\\\x1b[31m(cm)\\\\u202e', 'größe, 体重')
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(ascii(one)[1:-1] if unicodedata.category(one) in ESCAPED else one for one in text)


def say(line: object, *, err: bool = False) -> None:
    """Write one line, which may be an advice, to standard output, or to standard error."""
    typer.echo(escaped(as_options(line)), err=err)


# --- errors ---


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn expected errors inside the block into one line and an exit status.

    Other exceptions are bugs and keep their traceback.
    """
    try:
        yield
    except KeyboardInterrupt as interruption:
        if message := _message(interruption):  # a TrainingInterrupted says how to resume
            sys.stderr.write(f"{escaped(message)}\n")
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # the reader of standard output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except Exception as error:
        from cubicflow.training import TrainingError  # imports torch, which a command may not need

        if not isinstance(error, ValueError | OSError | ImportError | TrainingError):
            raise
        message = " ".join(_message(error).split()) or type(error).__name__
        sys.stderr.write(f"error: {escaped(message)}\n")
        raise SystemExit(REFUSED) from None


def _message(error: BaseException) -> str:
    """Return the message of an error, which may be an advice."""
    return as_options(error.args[0]) if len(error.args) == 1 else str(error)


# --- options ---


def as_options(line: object) -> str:
    """Return a line, with the arguments of an advice as options.

    >>> as_options(Advice("column 'id' is text; leave it out", drop=["id"]))
    "column 'id' is text; leave it out with --drop id"
    >>> as_options(Advice("the range is too small; widen it", bounds={"size": ("LOW", "HIGH")}))
    'the range is too small; widen it with --bounds size=LOW:HIGH'
    """
    if not isinstance(line, Advice) or not line.arguments:
        return str(line)
    options = [_option(name, one) for name, value in line.arguments.items() for one in alternatives(value)]
    return f"{line.message} with {' or '.join(options)}"


def _option(name: str, value: Any) -> str:
    option = f"--{OTHERWISE_NAMED.get(name, name).replace('_', '-')}"
    if value is True or value is ...:
        return option
    if isinstance(value, dict):
        value = [f"{column}={_text(one)}" for column, one in value.items()]
    return f"{option} {shlex.quote(','.join(value) if isinstance(value, list) else str(value))}"


def _text(value: Any) -> str:
    return VALUE if value is ... else ":".join(value) if isinstance(value, tuple) else str(value)
