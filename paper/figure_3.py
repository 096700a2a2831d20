"""Figure 3: Fashion-MNIST, samples of a flow at three temperatures, and its test likelihood in bits per dimension."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from benchmarks.markdown import markdown_table
from numpy.typing import NDArray

from cubicflow.flows import Flow, bits_per_dim, dequantise, image
from cubicflow.plots.training_curve import training_curve
from paper.data.images import load_fashion_mnist
from paper.experiment import Request
from paper.figures import image_grids
from paper.recipe_files import typed
from paper.scores import estimate

IMAGES_AT_ONCE = 500
BOUND = (
    "Pixels are whole numbers from 0 to 255. The flow is a density of pixel + u with u uniform in [0, 1). By Jensen's "
    "inequality, the mean of its log density over u is at most the log probability of the pixels. So the figure is an "
    "upper bound on the bits of the pixels. The bits are divided by all 28 x 28 = 784 pixels; images are not padded."
)


@dataclass(frozen=True)
class Settings:
    """The settings in the recipe of figure 3."""

    seed: int
    validation: int
    most_images: int
    temperatures: Sequence[float]
    samples_side: int
    noise_draws: int
    bits_reach: float
    bits_aim: float
    flow: Mapping[str, Any]
    training: Mapping[str, Any]


def run(request: Request) -> None:
    """Fit the flow, score the test images, and draw training images, samples and the training curve."""
    settings = typed(Settings, request.recipe, request.name)
    request.begin(request.folder)
    data = load_fashion_mnist(request.data, validation=settings.validation)
    train, validation, test = (
        part[: settings.most_images, None] for part in (data.train, data.validation, data.test)
    )  # (n, 1, 28, 28), uint8
    seed = request.first_seed
    shape = train.shape[1:]
    fitted = request.train(
        lambda: image(shape, **settings.flow, seed=seed),
        train,
        validation,
        settings.training,
        request.folder / "run",
        seed=seed,
    )
    flow = fitted.flow
    bits = estimate([bits_of_images(flow, test, settings.noise_draws, seed)])
    grids = {"training data": train[: settings.samples_side**2, 0].astype(np.float64)}
    for temperature in settings.temperatures:
        drawn = flow.sample(settings.samples_side**2, temperature=temperature, seed=seed, batch_size=IMAGES_AT_ONCE)
        grids[f"temperature {temperature:g}"] = drawn.squeeze(1).clamp(0, 256).cpu().numpy()
    request.draw("figure-3.png", image_grids(grids))
    request.draw("figure-3-training.png", training_curve(fitted.history))
    loss = fitted.validation_loss
    results = {
        "bits_per_dim": bits.mean,
        "error": bits.error,
        "test_images": bits.rows,
        "all_test_images": len(test) == len(data.test),
        "reached": bits.mean <= settings.bits_reach,
        "aim_met": bits.mean < settings.bits_aim,
        "validation_bits_per_dim": None if loss is None else loss / (math.prod(shape) * math.log(2)),
        "bound": BOUND,
        "noise_draws": settings.noise_draws,
        "parameters": sum(parameter.numel() for parameter in flow.parameters()),
        "steps": fitted.steps,
        "weights": fitted.weights,
        "seconds": round(fitted.seconds, 1),
    }
    shown = ("bits_per_dim", "error", "test_images", "validation_bits_per_dim", "parameters", "steps", "seconds")
    request.write_csv("figure-3.csv", [{name: results[name] for name in shown}])
    request.write("figure-3.md", markdown_table(shown, [[_short(results[name]) for name in shown]]) + "\n")
    request.record(results)
    request.report(f"{bits.mean:.3f} ± {bits.error:.3f} bits per dimension on {bits.rows:,} test images")


@torch.no_grad()
def bits_of_images(flow: Flow, test: NDArray[np.uint8], draws: int, seed: int) -> NDArray[np.float64]:
    """Return the bits per pixel of each image, averaged over ``draws`` draws of the dequantisation noise."""
    device = next(flow.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    pieces = []
    for first in range(0, len(test), IMAGES_AT_ONCE):
        pixels = torch.from_numpy(test[first : first + IMAGES_AT_ONCE]).to(device)
        scores = [flow.log_prob(dequantise(pixels, generator)).double() for _ in range(draws)]
        pieces.append(bits_per_dim(torch.stack(scores).mean(0), pixels[0].numel()).cpu().numpy())
    return np.concatenate(pieces)


def _short(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
