"""Suppression of warnings from torch and onnxscript about their internals."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings and log messages, because the user cannot act on them. Exceptions are still raised.

    Before torch raises an exception, it also prints the graph that it has traced so far to standard error.
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
