"""Messages of errors as the page shows them: one line, without the folders of this machine."""

from __future__ import annotations

import re
from pathlib import Path

from cubicflow.advice import message_of

LONGEST = 1000  # characters
PATHS = re.compile(r"(?<![\w.:/])(?:[A-Za-z]:\\|/)[^\s'\",;]*[/\\]([^\s'\",;/\\]*)")


class RefusedError(ValueError):
    """An error whose message is for the user: the question cannot be answered."""


def one_line(error: BaseException, *known: Path) -> str:
    """Return the message of an error as one line, without paths."""
    return without_paths(" ".join(message_of(error).split()) or type(error).__name__, *known)[:LONGEST]


def without_paths(text: str, *known: Path) -> str:
    """Replace paths in a message by file names. Only the paths in ``known`` may contain spaces.

    >>> without_paths("/home/me/run/config.json: not valid JSON; see '/tmp/x y'")
    "config.json: not valid JSON; see 'x y'"
    >>> without_paths("/my own/runs/first/config.json: damaged", Path("/my own/runs/first"))
    'first/config.json: damaged'
    """
    for path in known:
        for text_of_path in {str(path), str(path.absolute()), str(path.resolve())}:
            if text_of_path not in (".", "/"):
                text = text.replace(text_of_path, path.resolve().name)
    return PATHS.sub(r"\1", text)
