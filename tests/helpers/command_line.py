"""A command line called in this process. Its parser is kept: typer takes 50 ms to build it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest


class Outcome(NamedTuple):
    status: int
    output: str
    errors: str


Command = Callable[..., Outcome]
_PARSERS: dict[str, Any] = {}


def caller(
    program: str, main: Callable[[], None], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Return a function that runs a command of the program, and returns its exit status and what it wrote."""
    import typer.main

    build = typer.main.get_command

    def kept(app: typer.Typer) -> Any:
        if app.info.name not in _PARSERS:
            _PARSERS[app.info.name] = build(app)
        return _PARSERS[app.info.name]

    monkeypatch.setattr(typer.main, "get_command", kept)

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", [program, *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        written = capfd.readouterr()
        code = stopped.value.code
        return Outcome(code if isinstance(code, int) else 0 if code is None else 1, written.out, written.err)

    return run


@pytest.fixture
def cubicflow(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs ``cubicflow`` in this process."""
    from cubicflow.cli import main

    return caller("cubicflow", main, capfd, monkeypatch)
