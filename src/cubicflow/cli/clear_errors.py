"""How a command fails: one clear line, no traceback, exit status 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C ended
REFUSED = 2


@contextmanager
def clear_errors() -> Iterator[None]:
    """Errors with an answer in them end the program with that answer; anything else is a bug and keeps its trace."""
    from cubicflow.cli.terminal import escaped
    from cubicflow.training import TrainingError, TrainingInterrupted

    try:
        yield
    except TrainingInterrupted as interruption:
        sys.stderr.write(f"{escaped(str(interruption))}\n")
        raise SystemExit(INTERRUPTED) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except (ValueError, OSError, ImportError, TrainingError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        if option := getattr(error, "option", None):  # how the command line does what the message advises last
            message = f"{message} with {option}"
        sys.stderr.write(f"error: {escaped(message)}\n")
        raise SystemExit(REFUSED) from None
