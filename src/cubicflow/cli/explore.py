"""``cubicflow explore RUN``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cubicflow.cli.clear_errors import clear_errors
from cubicflow.cli.terminal import say


def explore(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    port: Annotated[
        int | None, typer.Option(help="Of the page; else 8470. The next free one where it is taken.", min=0, max=65535)
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Open a page on which to explore a fit: its columns, what if, odd rows, layers, images.

    Example: cubicflow explore run

    The page is for this machine alone, and for whoever has the address with its token. Ctrl-C ends it.
    """
    with clear_errors():
        from cubicflow.explore.server import serve

        serve(run, port=port, browser=browser, report=say)
        # A thread may still be in a kernel, and must not see the interpreter end: the process ends at once.
        sys.stdout.flush()
        os._exit(0)
