"""Which measurements make a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch

from cubicflow.bench import workloads
from cubicflow.bench.timing import Measurement

POWER_MODEL = {"num_layers": 10, "hidden": 256, "num_bins": 10}  # the paper's tabular flow


def run(
    parts: tuple[str, ...],
    device: torch.device,
    *,
    seconds: float = 2.0,
    quick: bool = False,
    say: Callable[[str], None],
) -> Iterator[list[Measurement]]:
    """Measure the parts asked for, every contender for about ``seconds``, and tell as they come in. After each part,
    all measurements so far."""
    found: list[Measurement] = []
    for part in parts:
        for measurement in PART_RUNS[part](device, 0.2 if quick else seconds, quick):
            found.append(measurement)
            say(f"{measurement.work:<58} {measurement.implementation:<30} {measurement.median:10.3f} ms")
        yield found


def _splines(device: torch.device, seconds: float, quick: bool) -> Iterator[Measurement]:
    sizes = [(2**20, 10), (2**18, 128)] if device.type == "cuda" else [(2**17, 10)]
    for rows, num_bins in [(2**12, 10)] if quick else sizes:
        yield from workloads.splines(device, rows=rows, num_bins=num_bins, seconds=seconds, quadratic=True)


def _training(device: torch.device, seconds: float, quick: bool) -> Iterator[Measurement]:
    for features in (6,) if quick else (6, 21, 63):
        yield from workloads.training_step(device, features=features, batch=512, seconds=seconds, **POWER_MODEL)


def _densities(device: torch.device, seconds: float, quick: bool) -> Iterator[Measurement]:
    rows = 2**10 if quick else 2**20 if device.type == "cuda" else 2**14
    yield from workloads.densities_and_samples(device, features=6, rows=rows, seconds=seconds, **POWER_MODEL)


def _one_pass(device: torch.device, seconds: float, quick: bool) -> Iterator[Measurement]:
    """The paper's argument: time against the number of features."""
    for features in (2, 8) if quick else (2, 4, 8, 16, 32, 64, 128):
        points = workloads.one_pass(device, features=features, rows=512, hidden=64, seconds=seconds / 4)
        yield from _along("features", features, points)


def _scaling(device: torch.device, seconds: float, quick: bool) -> Iterator[Measurement]:
    """Cost against elements and against K."""
    top = 12 if quick else 22 if device.type == "cuda" else 18
    for power in range(10, top + 1, 2):
        points = workloads.splines(device, rows=2**power, num_bins=10, seconds=seconds / 4)
        yield from _along("elements", 2**power, points)
    for num_bins in (1, 4, 16) if quick else (1, 2, 4, 8, 16, 32, 64, 128, 256):
        rows = 2**10 if quick else 2**18 if device.type == "cuda" else 2**14
        points = workloads.splines(device, rows=rows, num_bins=num_bins, seconds=seconds / 4)
        yield from _along("bins", num_bins, points)


def _along(curve: str, at: int, points: Iterable[Measurement]) -> Iterator[Measurement]:
    return (replace(point, curve=curve, at=at) for point in points)


PART_RUNS: dict[str, Callable[[torch.device, float, bool], Iterator[Measurement]]] = {
    "splines": _splines,
    "training": _training,
    "densities": _densities,
    "one-pass": _one_pass,
    "scaling": _scaling,
}
