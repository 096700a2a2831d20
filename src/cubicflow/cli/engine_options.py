"""Options of the commands that work block by block, in one process or on a cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubicflow.cli.remarks import say_unseen
from cubicflow.cli.terminal import say

if TYPE_CHECKING:
    from cubicflow.clusters import JobResult

_option = partial(typer.Option, rich_help_panel="Many rows")
Engine = Annotated[
    str | None,
    _option(help="local, threads of this process, or ray, workers of a cluster; work in blocks, into a folder."),
]
Address = Annotated[
    str | None, _option(help="Of a Ray cluster: auto, HOST:PORT or ray://HOST:PORT; one is started by default.")
]
Workers = Annotated[int | None, _option(help="By default one for each core, or for each GPU.", min=1)]
BlockRows = Annotated[int | None, _option(help="Rows of a block, and so of a part; 131,072 by default.", min=1)]
OnError = Annotated[str | None, _option(help="A bad file or row: stop, or skip, which sets it aside.")]
Resume = Annotated[bool, _option("--resume", help="Go on with the job in the folder, or begin where there is none.")]
Keys = Annotated[list[str] | None, _option("--key", help="A column that the parts keep beside the scores.")]


def of_engine(engine: str | None, **given: Any) -> dict[str, Any]:
    """The arguments of a job that were given. Without an engine there should be none.

    >>> of_engine("ray", workers=2, address=None)
    {'engine': 'ray', 'workers': 2}
    """
    told = {name: value for name, value in given.items() if value not in (None, False, [])}
    if engine is None and told:
        option = "key" if "keys" in told else next(iter(told)).replace("_", "-")
        raise ValueError(f"--{option} belongs to work in blocks; choose an engine with --engine local or --engine ray")
    return {"engine": engine, **told}


def refuse(engine: str, **given: Any) -> None:
    """Refuse options that work in blocks has no use for."""
    for name, value in given.items():
        if value not in (None, False):
            raise ValueError(f"--{name.replace('_', '-')} does not go with --engine {engine}; leave it out")


def say_job(result: JobResult, kept: str | None) -> None:
    """What a job reports, on standard error; ``kept`` is the file of what was set aside."""
    for note in result.notes:
        say(f"note: {note}", err=True)
    if result.before:
        say(f"note: {result.before:,} of {result.blocks:,} blocks were done before", err=True)
    say_unseen(result.unseen)
    if result.skipped:
        files = sum(each.first is None for each in result.skipped)
        rows = sum((each.last or 0) - each.first + 1 for each in result.skipped if each.first is not None)
        say(
            f"warning: {files:,} files and {rows:,} rows were set aside, see {kept}; the first: {result.skipped[0]}",
            err=True,
        )
