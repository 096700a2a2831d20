"""``make demo``: a portrait as a two-dimensional density, and 225 Gaussians whose true density is known."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from cubicflow.data.plane import GaussianGrid, ImageDensity
from cubicflow.flows import plane
from cubicflow.plots.plane import PlaneRow, density_image, histogram_image, plane_figure, truth_image
from cubicflow.training import fit

POINTS = 1_000_000
TEST_POINTS = 50_000
BATCH_SIZE = 1024
DENSITIES: dict[str, Callable[[], ImageDensity | GaussianGrid]] = {
    "Grace Hopper": ImageDensity.from_file,
    "225 Gaussians": GaussianGrid,
}
RUNS = {"Grace Hopper": "grace-hopper", "225 Gaussians": "gaussians"}  # names of run folders and of built-in tables
SIZE = 256  # pixels per side of each picture


def main(folder: Path, seconds: float) -> None:
    """Fit each density in its own process for ``seconds``, print both scores, and write one picture."""
    with ProcessPoolExecutor(len(DENSITIES), mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(show, DENSITIES, [seconds] * len(DENSITIES), [folder] * len(DENSITIES)))
    import matplotlib as mpl

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "plane.png"
    plane_figure(rows).savefig(path, dpi=120)
    print(f"wrote {path}")
    print(f"to see the portrait turn into noise, layer by layer: cubicflow explore {folder / RUNS['Grace Hopper']}")


def show(name: str, seconds: float, folder: Path) -> PlaneRow:
    """Fit a plane flow to points of a density, and return its pictures.

    Prints the mean log likelihood of test points under the flow, and how far it is below that of the true density.
    """
    torch.set_num_threads(1)  # the other process uses the other core
    began = time.monotonic()
    truth = DENSITIES[name]()
    points = truth.sample(POINTS, 0)
    flow = plane()
    parameters = sum(parameter.numel() for parameter in flow.parameters())
    print(f"{name}: fitting {parameters:,} parameters to {POINTS:,} points for {seconds:.0f} s ...", flush=True)
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
    print(
        f"{name}: log likelihood {score:.3f} nats, {gap:.3f} below the truth "
        f"({result.steps:,} steps, {time.monotonic() - began:.0f} s)",
        flush=True,
    )
    samples = flow.sample(POINTS, seed=0, batch_size=65_536).numpy()
    data, drawn = histogram_image(points, SIZE), histogram_image(samples, SIZE)
    return PlaneRow(name, data, truth_image(truth, SIZE), density_image(flow, SIZE), drawn)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("demo"), help="folder for the picture and the two runs"
    )
    parser.add_argument("--seconds", type=float, default=110, help="seconds of training for each density")
    arguments = parser.parse_args()
    main(arguments.output, arguments.seconds)
