"""``python -m paper``: rerun a figure or a table of the paper."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from cubicflow.cli.terminal import clear_errors, say

UNFINISHED = 75  # EX_TEMPFAIL of sysexits.h: the same command continues the run
PEERS = "peers"
NAMES = "figure-1, figure-2, table-1, peers, figure-3, appendix, or page"


def main() -> None:
    """Run the command line. An invalid command prints one line on standard error and exits with status 2."""
    app = typer.Typer(name="paper", add_completion=False, pretty_exceptions_enable=False)
    app.command(no_args_is_help=True)(rerun)
    app()


def rerun(
    name: Annotated[str, typer.Argument(help=f"Experiment: {NAMES}.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for all results. Default: runs/NAME, or runs/NAME-paper."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use short training and small data. This only checks the command.")
    ] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="figure-2 and figure-3: fit the model as the paper describes it.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Data folder. Default: $CUBICFLOW_DATA, else data in the cache folder.")
    ] = None,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N.")] = "auto",
    seed: Annotated[int | None, typer.Option(help="Seed. Default: the seed of the recipe.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after this many seconds; the same command continues.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="TOML file with settings that replace those of the recipe.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start over, and replace earlier results in the folder.")
    ] = False,
    image: Annotated[
        list[Path] | None, typer.Option(help="figure-2: picture to fit as a density. Repeat for several.")
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help="table-1 and peers: table to fit. Repeat for several. Default: all.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="table-1 and peers: model to fit. Repeat for several. Default: all.")
    ] = None,
) -> None:
    """Rerun a figure or a table of the paper from its recipe.

    The same command continues a run that was interrupted, or that ended after --seconds with exit status 75. "peers"
    fits flows of other packages for table-1. "page" writes the page of all results.

    Example: python -m paper table-1 -o runs/table-1 --dataset miniboone --model cubic --model quadratic

    Example: python -m paper page -o results
    """
    with clear_errors():
        from paper.deadline import Deadline
        from paper.experiment import EXPERIMENTS, Request, UnfinishedError
        from paper.peers import run_peers
        from paper.recipe_files import load_recipe
        from paper.results_page import write_page

        if name == "page":
            say(f"wrote {write_page(output or Path('results'))}")
            return
        if name not in (*EXPERIMENTS, PEERS):
            raise ValueError(f"unknown experiment {name!r}; choose one of {NAMES}")
        for option, given, owners in (
            ("--image", image, ("figure-2",)),
            ("--dataset", dataset, ("table-1", PEERS)),
            ("--model", model, ("table-1", PEERS)),
        ):
            if given and name not in owners:
                raise ValueError(f"{option} belongs to {' and '.join(owners)}, not to {name}; leave it out")
        experiment = "table-1" if name == PEERS else name
        request = Request(
            name=experiment,
            folder=output or Path("runs") / (f"{experiment}-paper" if paper else experiment),
            recipe=load_recipe(experiment, recipe, quick=quick, paper=paper),
            command=f"python -m paper {shlex.join(sys.argv[1:])}",
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
            if name == PEERS:
                run_peers(request)
            else:
                request.run()
        except UnfinishedError as unfinished:
            say(str(unfinished), err=True)
            raise SystemExit(UNFINISHED) from None
        say(f"wrote {request.folder}")


if __name__ == "__main__":
    main()
