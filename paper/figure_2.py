"""Figure 2: flows with two coupling layers on the unit square, fitted to 225 Gaussians and to pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from cubicflow.data.plane import GaussianGrid, ImageDensity, Points, Values
from cubicflow.flows import Flow, plane
from cubicflow.plots.plane import TITLES, PlaneRow, density_image, histogram_image, plane_figure, truth_image
from paper.data.folders import data_folder, find
from paper.experiment import Request, UnfinishedError
from paper.figure_2_report import density_table
from paper.recipe_files import typed
from paper.scores import estimate
from paper.sharpness import best_histogram, block_sizes, gaps_of_blocks, size_with_gap

GAUSSIANS = "225 Gaussians"
DOTS_PER_PIXEL = 1.1 / 3  # a panel of plots.plane is just under 3 inches wide; 10 % more dots keep every pixel
ROWS_AT_ONCE = 65_536
TEST = 1  # added to the seed of the training points to get the seed of the test points
IN_CSV = (
    *("density", "score", "truth", "gap", "gap_error", "training_gap", "training_gap_error"),
    *("blocks", "blocks_low", "blocks_high", "histogram_gap", "histogram_blocks", "histogram_added"),
    *("parameters", "steps", "seconds"),
)


@dataclass(frozen=True)
class Settings:
    """The settings in the recipe of figure 2."""

    seed: int
    points: int
    test_points: int
    pixels: int
    most_parameters: int
    gap_reach: float
    gap_aim: float
    pictures: Sequence[str]
    private: Sequence[str]
    by: Literal["darkness", "light"]
    flow: Mapping[str, Any]
    training: Mapping[str, Any]


def run(request: Request) -> None:
    """Fit a flow to each density, compare it with the true density on unseen points, and draw it."""
    settings = typed(Settings, request.recipe, request.name)
    request.begin(request.folder)
    densities, notes = _densities(settings, request)
    dots = round(DOTS_PER_PIXEL * settings.pixels)
    for note in notes:
        request.report(f"{note} (the data folder is {data_folder(request.data)})")
    rows: list[PlaneRow] = []
    results: list[dict[str, Any]] = []
    unfinished: UnfinishedError | None = None
    for name, density in densities.items():
        try:
            row, result = _fit(name, density, settings, request)
        except UnfinishedError as error:
            unfinished = error
            notes.append(f"{name}: not finished")
            continue
        rows.append(row)
        results.append(result)
        request.report(
            f"{name}: {result['score']:.4f} nats, {result['gap']:.4f} ± {result['gap_error']:.4f} below the truth, "
            f"{result['parameters']:,} parameters"
        )
        # Some pictures may not be published, so each density also has its own file.
        request.draw(result["picture"], plane_figure([row]), dots)
    if rows:
        request.draw("figure-2.png", plane_figure(rows), dots)
        lines = [{name: result[name] for name in IN_CSV} for result in results]
        request.write_csv("figure-2.csv", lines)
        request.write("figure-2.md", density_table(results))
        request.record({"panels": TITLES, "densities": results}, notes=notes)
    if unfinished is not None:
        raise unfinished


def _densities(settings: Settings, request: Request) -> tuple[dict[str, GaussianGrid | ImageDensity], list[str]]:
    """Return the densities by name, and a note about each picture of the recipe that is missing.

    The densities are the Gaussians and the pictures given with ``--image``. Without ``--image`` the pictures are those
    of the recipe, and Grace Hopper, which comes with matplotlib.
    """
    root, notes = data_folder(request.data), []
    paths: list[Path | None] = list(request.images)
    if not paths:
        for name in settings.pictures:
            if (path := find(root, [name])) is not None:
                paths.append(path)
            else:
                notes.append(f"{name} is not in the data folder; put it there, or give a picture with --image")
        paths.append(None)  # None is the picture that comes with matplotlib
    densities: dict[str, GaussianGrid | ImageDensity] = {GAUSSIANS: GaussianGrid()}
    for path in paths:
        name = "Grace Hopper" if path is None else path.stem.replace("_", " ").title()
        if slug(name) in map(slug, densities) or not slug(name):
            raise ValueError(f"{path} needs a name with letters or digits that no other picture has; rename it")
        densities[name] = ImageDensity.from_file(path, size=settings.pixels, by=settings.by)
    return densities, notes


def slug(name: str) -> str:
    """Convert a density's name to a form for file names.

    >>> slug("225 Gaussians"), slug("Гаусс")
    ('225-gaussians', 'гаусс')
    """
    return re.sub(r"[\W_]+", "-", name.lower()).strip("-")


def _fit(
    name: str, density: GaussianGrid | ImageDensity, settings: Settings, request: Request
) -> tuple[PlaneRow, dict[str, Any]]:
    seed = request.first_seed
    points = density.sample(settings.points, 2 * seed)
    fitted = request.train(
        lambda: plane(**settings.flow), points, None, settings.training, request.folder / "runs" / slug(name), seed=seed
    )
    flow = fitted.flow
    parameters = sum(parameter.numel() for parameter in flow.parameters())
    if parameters > settings.most_parameters:
        raise ValueError(
            f"the flow has {parameters:,} parameters, more than most_parameters = {settings.most_parameters:,}; make "
            "hidden_features or num_bins smaller in the recipe"
        )
    test = density.sample(settings.test_points, 2 * seed + TEST)
    truth, scores = density.log_prob(test), _scores(flow, test)
    gap, training_gap = estimate([truth - scores]), estimate([density.log_prob(points) - _scores(flow, points)])
    samples = flow.sample(settings.points, seed=seed, batch_size=ROWS_AT_ONCE).cpu().numpy()
    size = settings.pixels
    data, drawn = histogram_image(points, size), histogram_image(samples, size)
    row = PlaneRow(name, data, truth_image(density, size), density_image(flow, size), drawn)
    histogram = best_histogram(data.astype(np.float64), density)
    sizes = block_sizes(density, size)
    gaps = gaps_of_blocks(density, sizes, size)
    return row, {
        "density": name,
        "score": float(scores.mean()),
        "truth": float(truth.mean()),
        "gap": gap.mean,
        "gap_error": gap.error,
        "training_gap": training_gap.mean,
        "training_gap_error": training_gap.error,
        "blocks": size_with_gap(gap.mean, sizes, gaps),
        "blocks_low": size_with_gap(gap.mean - gap.error, sizes, gaps),
        "blocks_high": size_with_gap(gap.mean + gap.error, sizes, gaps),
        "histogram_gap": histogram.gap,
        "histogram_blocks": histogram.size,
        "histogram_added": histogram.added,
        "reached": gap.mean <= settings.gap_reach,
        "aim_met": gap.mean <= settings.gap_aim,
        "parameters": parameters,
        "steps": fitted.steps,
        "seconds": round(fitted.seconds, 1),
        "picture": f"figure-2-{slug(name)}.png",
        "private": name in settings.private,
    }


@torch.no_grad()
def _scores(flow: Flow, points: Points) -> Values:
    """Return the flow's log density at points (n, 2)."""
    device = next(flow.parameters()).device
    scores = flow.log_prob(torch.from_numpy(points).to(device), batch_size=ROWS_AT_ONCE)
    return np.asarray(scores.double().cpu().numpy())
