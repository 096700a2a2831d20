"""Error handling of commands: one line on standard error, no traceback, exit status 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cubicflow.cli.as_options import as_options

INTERRUPTED = 130  # exit status that shells report for a process ended by Ctrl-C
REFUSED = 2  # exit status of an invalid command or input


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn expected errors inside the block into one line and an exit status.

    Other exceptions are bugs and keep their traceback.
    """
    from cubicflow.cli.terminal import escaped

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
