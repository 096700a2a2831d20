"""``python -m benchmarks.speed``: the speed of cubicflow on this machine, beside other packages."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from cubicflow.cli.terminal import clear_errors, say

PARTS = "splines, training, fit, densities, start, one-pass or scaling"


def main() -> None:
    """Run the command line. An invalid command prints one line on standard error and exits with status 2."""
    app = typer.Typer(name="speed", add_completion=False, pretty_exceptions_enable=False)
    app.command(no_args_is_help=True)(speed)
    app()


def speed(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="New folder for the CSV file, the table and the picture.")
    ],
    only: Annotated[
        str | None, typer.Option(help=f"Parts to measure, separated by commas: {PARTS}. Default: all.")
    ] = None,
    device: Annotated[str, typer.Option(help="Device: auto, cpu or cuda.")] = "auto",
    seconds: Annotated[float, typer.Option(help="Seconds for each package and each workload.")] = 2.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use small sizes. This checks the command; the numbers mean nothing.")
    ] = False,
) -> None:
    r"""Measure the speed of cubicflow on this machine, and compare it with other packages.

    The command measures splines, training steps, a fit, densities, samples, and the time from the start of a process to
    its first step. nflows, zuko and normflows are measured too if they are installed: pip install "cubicflow\[bench]".
    All packages take turns in one run.

    Example: python -m benchmarks.speed -o speed --only splines,training
    """
    with clear_errors():
        from benchmarks.speed import report
        from benchmarks.speed.run import PART_RUNS, run
        from cubicflow.training.distributed import choose_device

        parts = tuple(PART_RUNS) if only is None else tuple(part.strip() for part in only.split(","))
        if unknown := [part for part in parts if part not in PART_RUNS]:
            raise ValueError(f"unknown part {unknown[0]!r} in --only; the parts are {PARTS}")
        if not 0 < seconds < float("inf"):
            raise ValueError(f"--seconds must be a number above 0, got {seconds:g}")
        if output.exists():
            raise FileExistsError(f"{output} exists; choose another folder")
        chosen = choose_device(device)
        output.mkdir(parents=True)  # fails before the first measurement if the folder cannot be written
        try:
            # Write the report again after each measurement, so that an interrupted run keeps its results.
            for found in run(parts, chosen, seconds=seconds, quick=quick, report=say):
                report.write(output, found, f"python -m benchmarks.speed {shlex.join(sys.argv[1:])}")
        finally:
            if any(output.iterdir()):
                report.draw(output)
            else:
                output.rmdir()
        say(f"wrote {', '.join(str(path) for path in sorted(output.iterdir()))}")


if __name__ == "__main__":
    main()
