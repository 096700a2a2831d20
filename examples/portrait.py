"""A portrait as a two-dimensional density, and 225 Gaussians whose true density is known: ``make demo``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from cubicflow.flows import plane
from cubicflow.plots.plane import PlaneRow, density_image, histogram_image, plane_figure, truth_image
from cubicflow.progress import clock, make_progress
from cubicflow.tables.read.places import BUILT_IN
from cubicflow.training import fit
from cubicflow.training.run_folder import RunFolder, read_metrics

POINTS = 1_000_000
TEST_POINTS = 50_000
BATCH_SIZE = 1024
RUNS = {"Grace Hopper": "grace-hopper", "225 Gaussians": "gaussians"}  # names of run folders and of built-in tables
SIZE = 256  # pixels per side of each picture
LINES = 20  # lines of progress in a log; a terminal has a bar


def main(folder: Path, seconds: float) -> None:
    """Fit each density in its own process for ``seconds``, print both scores, and write one picture."""
    parameters = sum(parameter.numel() for parameter in plane().parameters())
    print(
        f"fitting {parameters:,} parameters to {POINTS:,} points for {seconds:.0f} s: {', '.join(RUNS)}",
        flush=True,
    )
    for run in RUNS.values():
        RunFolder(folder / run).forget()  # its metrics are not those of this call
    with ProcessPoolExecutor(len(RUNS), mp_context=get_context("spawn")) as pool:
        fits = {name: pool.submit(fit_density, name, seconds, folder) for name in RUNS}
        show_progress(fits, seconds, folder)
        rows, scores = zip(*(fitted.result() for fitted in fits.values()), strict=True)
    print(*scores, sep="\n")
    import matplotlib as mpl

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "plane.png"
    plane_figure(rows).savefig(path, dpi=120)
    print(f"wrote {path}")
    print(f"to see the portrait turn into noise, layer by layer: cubicflow explore {folder / RUNS['Grace Hopper']}")


def show_progress(fits: Mapping[str, Future[tuple[PlaneRow, str]]], seconds: float, folder: Path) -> None:
    """Show the losses of the running fits on standard error, until all have ended or one has failed."""
    seconds_between = 1 if sys.stderr.isatty() else seconds / LINES
    shown: Mapping[str, Any] = {}
    with closing(make_progress(True, validates=False)) as display:
        display.show(0.0, {"state": "drawing the points"})
        running = True
        while running:
            ended, unfinished = wait(fits.values(), seconds_between, FIRST_EXCEPTION)
            running = bool(unfinished) and not any(each.exception() for each in ended)
            lines = {name: read_metrics(folder / RUNS[name]) for name in fits}
            latest = {name: metrics[-1] for name, metrics in lines.items() if metrics}
            if len(latest) < len(fits) or latest == shown:
                continue
            shown = latest
            trained = min(metrics["seconds"] for metrics in latest.values())
            texts = {"step": f"step {min(metrics['step'] for metrics in latest.values()):,}"}
            texts |= {name: f"{name} loss {metrics['loss']:.3f}" for name, metrics in latest.items()}
            display.show(min(trained / seconds, 1.0), texts | {"left": f"{clock(max(seconds - trained, 0))} left"})


def fit_density(name: str, seconds: float, folder: Path) -> tuple[PlaneRow, str]:
    """Fit a plane flow to points of a density, and return its pictures and its score as text.

    The score is the mean log likelihood of test points, with its distance from that of the true density.
    """
    torch.set_num_threads(1)  # the other process uses the other core
    began = time.monotonic()
    truth = BUILT_IN[RUNS[name]]()
    points = truth.sample(POINTS, 0)
    flow = plane()
    settings: dict[str, Any] = {
        "batch_size": BATCH_SIZE,
        "learning_rate": 3e-3,
        "validation_fraction": 0.01,
        "patience": 0,
    }
    run: dict[str, Any] = {"run": folder / RUNS[name], "overwrite": True, "sections": {"built_in": RUNS[name]}}
    result = fit(flow, points, time_budget=seconds, device="cpu", progress=False, **run, **settings)
    test = truth.sample(TEST_POINTS, 1)
    with torch.no_grad():
        score = flow.log_prob(torch.from_numpy(test)).double().mean().item()
    gap = float(truth.log_prob(test).mean()) - score
    text = (
        f"{name}: log likelihood {score:.3f} nats, {gap:.3f} below the truth "
        f"({result.steps:,} steps, {time.monotonic() - began:.0f} s)"
    )
    samples = flow.sample(POINTS, seed=0, batch_size=65_536).numpy()
    data, drawn = histogram_image(points, SIZE), histogram_image(samples, SIZE)
    return PlaneRow(name, data, truth_image(truth, SIZE), density_image(flow, SIZE), drawn), text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("demo"), help="folder for the picture and the two runs"
    )
    parser.add_argument("--seconds", type=float, default=110, help="seconds of training for each density")
    arguments = parser.parse_args()
    main(arguments.output, arguments.seconds)
