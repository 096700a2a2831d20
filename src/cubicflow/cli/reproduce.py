"""``cubicflow reproduce``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from cubicflow.cli.clear_errors import clear_errors
from cubicflow.cli.terminal import say

UNFINISHED = 75  # what sysexits.h calls a temporary failure: the same command goes on
NAMES = "figure-1, figure-2, table-1, figure-3, appendix, or page"


def reproduce(
    name: Annotated[str, typer.Argument(help=f"What to rerun: {NAMES}.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for everything; by default runs/NAME.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Short and small: to see that it works, no result.")] = False,
    data: Annotated[Path | None, typer.Option(help="The data folder; by default the usual one.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N.")] = "auto",
    seed: Annotated[int | None, typer.Option(help="By default the recipe's.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="End this call after so long; the same command goes on.")
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="A TOML file whose settings replace the recipe's.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin again, whatever the folder holds.")] = False,
    image: Annotated[list[Path] | None, typer.Option(help="figure-2: a picture as a density; repeat it.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="table-1: only this one; repeat it.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="table-1: only this one; repeat it.")] = None,
) -> None:
    """Rerun a figure or a table of the paper from its recipe, on the data that is there.

    Example: cubicflow reproduce table-1 -o runs/table-1 --dataset miniboone --model cubic --model quadratic

    A call that was stopped, or whose --seconds were over (exit status 75), is continued by the same command. The page
    of all results is made by: cubicflow reproduce page -o results
    """
    with clear_errors():
        from cubicflow.reproduce.deadline import Deadline
        from cubicflow.reproduce.experiment import EXPERIMENTS, Request, UnfinishedError
        from cubicflow.reproduce.recipe_files import load_recipe
        from cubicflow.reproduce.results_page import write_page

        if name == "page":
            say(f"wrote {write_page(output or Path('results'))}")
            return
        if name not in EXPERIMENTS:
            raise ValueError(f"there is no experiment {name!r}; there are {NAMES}")
        for option, given, owner in (
            ("--image", image, "figure-2"),
            ("--dataset", dataset, "table-1"),
            ("--model", model, "table-1"),
        ):
            if given and name != owner:
                raise ValueError(f"{option} belongs to {owner}, not to {name}; leave it out")
        request = Request(
            name=name,
            folder=output or Path("runs") / name,
            recipe=load_recipe(name, recipe, quick=quick),
            command=f"cubicflow {shlex.join(sys.argv[1:])}",
            quick=quick,
            data=data,
            device=device,
            seed=seed,
            deadline=Deadline(seconds),
            overwrite=overwrite,
            images=tuple(image or ()),
            datasets=tuple(dataset or ()),
            models=tuple(model or ()),
            report=say,
        )
        try:
            request.run()
        except UnfinishedError as unfinished:
            say(str(unfinished), err=True)
            raise SystemExit(UNFINISHED) from None
        say(f"wrote {request.folder}")
