"""A command line called in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest


class Outcome(NamedTuple):
    status: int
    output: str
    errors: str


Command = Callable[..., Outcome]


def caller(
    program: str, main: Callable[[], None], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Return a function that runs a command of the program, and returns its exit status and what it wrote."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", [program, *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        written = capfd.readouterr()
        code = stopped.value.code
        return Outcome(code if isinstance(code, int) else 0 if code is None else 1, written.out, written.err)

    return run
