"""``cubicflow bench``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from cubicflow.cli.clear_errors import clear_errors
from cubicflow.cli.terminal import say

PARTS = "splines, training, densities, start, one-pass or scaling"


def bench(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the CSV, the table and the picture.")],
    only: Annotated[str | None, typer.Option(help=f"Some parts, with commas between them: {PARTS}.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seconds: Annotated[float, typer.Option(help="How long to run each contender on each piece of work.")] = 2.0,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: to see that it works, not to quote.")] = False,
) -> None:
    r"""Measure this machine: splines, training steps, densities and samples, and how long a fresh process takes to its
    first step, beside nflows, zuko and normflows where they are installed (pip install "cubicflow\[bench]"). All
    contenders take turns in one run.

    Example: cubicflow bench -o bench --only splines,training
    """
    with clear_errors():
        from cubicflow.bench import bench_report
        from cubicflow.bench.run import PART_RUNS, run
        from cubicflow.training.distributed import choose_device

        parts = tuple(PART_RUNS) if only is None else tuple(part.strip() for part in only.split(","))
        if unknown := [part for part in parts if part not in PART_RUNS]:
            raise ValueError(f"there is no part {unknown[0]!r} to measure; there are {PARTS}")
        if not 0 < seconds < float("inf"):
            raise ValueError(f"seconds must be a number above 0, got {seconds:g}")
        if output.exists():
            raise FileExistsError(f"{output} exists; choose another folder")
        chosen = choose_device(device)
        output.mkdir(parents=True)  # now, rather than fail after the first measurement
        try:
            # Written again after each measurement, so that a run that is stopped leaves what it has.
            for found in run(parts, chosen, seconds=seconds, quick=quick, report=say):
                bench_report.write(output, found, f"cubicflow {shlex.join(sys.argv[1:])}")
        finally:
            if any(output.iterdir()):
                bench_report.draw(output)
            else:
                output.rmdir()
        say(f"wrote {', '.join(str(path) for path in sorted(output.iterdir()))}")
