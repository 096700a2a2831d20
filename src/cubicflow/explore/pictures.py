"""The view of images: samples at a temperature, and a path between two samples through noise space."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.explore.framed import framed
from cubicflow.explore.opened_run import OpenedRun
from cubicflow.explore.questions import MOST_SEED, Question, temperature_of, whole
from cubicflow.flows import Flow
from cubicflow.tables import TableError

MOST_IMAGES = 64
MOST_STEPS = 24


@torch.no_grad()
def images(run: OpenedRun, question: Question) -> bytes:
    """Return ``n`` samples. At another temperature, the same seed gives the same noise with another scale."""
    flow, n = _image_flow(run), max(1, whole(question, "n", MOST_IMAGES))
    noise = _noise(flow, n, whole(question, "seed", MOST_SEED)) * temperature_of(question)
    return framed({}, {"images": pixels(flow.from_noise(noise, batch_size=16)[0])})


@torch.no_grad()
def path(run: OpenedRun, question: Question) -> bytes:
    """Return images on a path between two samples, ``first`` and ``last``.

    The path between two normal vectors follows a great circle: the middle of a straight line would be much closer to 0
    than any sample.
    """
    flow = _image_flow(run)
    first, last = (whole(question, key, MOST_IMAGES - 1) for key in ("first", "last"))
    noise = _noise(flow, max(first, last) + 1, whole(question, "seed", MOST_SEED))
    way = between(noise[first], noise[last], whole(question, "steps", MOST_STEPS)) * temperature_of(question)
    return framed({}, {"images": pixels(flow.from_noise(way, batch_size=16)[0])})


def between(a: Tensor, b: Tensor, steps: int) -> Tensor:
    """Return points (steps, D) from a to b. Length and direction change evenly.

    >>> between(torch.tensor([2.0, 0.0]), torch.tensor([0.0, 2.0]), 3)[1]
    tensor([1.4142, 1.4142])
    """
    t = torch.linspace(0, 1, steps, dtype=a.dtype)[:, None]
    cosine = torch.dot(a, b) / (a.norm() * b.norm()).clamp(min=1e-12)
    angle = torch.arccos(cosine.clamp(-1 + 1e-7, 1 - 1e-7))
    if float(angle) < 1e-3:
        return (1 - t) * a + t * b
    length = (1 - t) * a.norm() + t * b.norm()
    along = torch.sin((1 - t) * angle) * a / a.norm() + torch.sin(t * angle) * b / b.norm()
    path: Tensor = length * along / torch.sin(angle)
    return path


def pixels(images: Tensor) -> NDArray[np.uint8]:
    """Convert images (n, C, H, W) to bytes (n, H, W, C). Values are clipped to 0 … 255."""
    found: NDArray[np.uint8] = images.clamp(0, 255.999).floor().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    return found


def _noise(flow: Flow, n: int, seed: int) -> Tensor:
    generator = torch.Generator(next(flow.parameters()).device).manual_seed(seed)
    return flow.base.sample(n, 1.0, generator).reshape(n, math.prod(flow.shape))


def _image_flow(run: OpenedRun) -> Flow:
    if run.kind != "images" or not isinstance(run.model, Flow):
        raise TableError("this run is not a flow of images; see the other views")
    return run.model
