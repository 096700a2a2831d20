"""``cubicflow explore RUN``."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from cubicflow.cli import shared
from cubicflow.cli.terminal import say


def explore(
    run: shared.RunFolder,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port of the page; if it is taken, the next free one. 0 is any port. Default: 8470.", min=0, max=65535
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Explore a fitted model on a web page: columns, conditions, unusual rows, layers, images.

    The page can be opened only on this machine, with an address that contains a secret token. Ctrl-C stops the server.

    Example: cubicflow explore run
    """
    from cubicflow.explore.server import serve

    serve(run, port=port, browser=browser, report=say)
    # Exit without shutting down the interpreter: a thread may still run a kernel.
    sys.stdout.flush()
    os._exit(0)
