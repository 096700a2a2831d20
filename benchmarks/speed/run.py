"""The measurements of a benchmark run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch

from benchmarks.speed import workloads
from benchmarks.speed.fit import speed_of_fit
from benchmarks.speed.kernels import compile_ahead
from benchmarks.speed.start import starts
from benchmarks.speed.timing import Measurement

GPU_SPLINES = [(2**20, 10), (2**18, 128)]  # elements, K
BINS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
POWER_MODEL = {"num_layers": 10, "hidden": 256, "num_bins": 10}  # the paper's tabular flow


def run(
    parts: tuple[str, ...],
    device: torch.device,
    *,
    seconds: float = 2.0,
    quick: bool = False,
    report: Callable[[str], None],
) -> Iterator[list[Measurement]]:
    """Measure the given parts, every contender for about ``seconds``.

    Calls ``report`` with a line of text after each measurement, and yields all measurements so far.
    """
    found: list[Measurement] = []
    failures: list[Exception] = []
    begun = time.monotonic()
    if device.type == "cuda" and not quick and {"splines", "scaling"} & set(parts):
        sizes = [num_bins for _, num_bins in GPU_SPLINES]
        splines = [("cubic", k) for k in sorted({*BINS, *sizes})]
        compile_ahead(splines + [(name, k) for name in workloads.RELATIVES for k in sizes])
        report(f"kernels compiled, {time.monotonic() - begun:.0f} s")
    for part in parts:
        try:
            for measurement in PART_RUNS[part](device, min(seconds, 0.2) if quick else seconds, quick):
                found.append(measurement)
                report(f"{measurement.work:<58} {measurement.implementation:<30} {measurement.median:10.3f} ms")
                yield found
        except Exception as error:  # raise the error at the end, so that the other parts are still measured
            failures.append(error)
        report(f"{part} done, {time.monotonic() - begun:.0f} s")
    if failures:
        raise failures[0]


def _splines(device: torch.device, seconds: float, quick: bool) -> Iterator[Measurement]:
    sizes = GPU_SPLINES if device.type == "cuda" else [(2**17, 10)]
    for rows, num_bins in [(2**12, 10)] if quick else sizes:
        yield from workloads.splines(device, rows=rows, num_bins=num_bins, seconds=seconds, relatives=True)


def _training(device: torch.device, seconds: float, quick: bool) -> Iterator[Measurement]:
    for features in (6,) if quick else (6, 21, 63):
        yield from workloads.training_step(device, features=features, batch=512, seconds=seconds, **POWER_MODEL)


def _fit(device: torch.device, _seconds: float, quick: bool) -> Iterator[Measurement]:
    """Measure a whole fit, from its own metrics."""
    steps, every = (12, 6) if quick else (8_000, 2_000) if device.type == "cuda" else (60, 30)
    sizes = {"rows": 4_096, "validation_rows": 512} if quick else {}
    for name, took in speed_of_fit(device.type, steps=steps, validate_every=every, **sizes).items():
        work = f"fit: {name}, D = 6, batch 512"
        yield Measurement(work, workloads.OURS, device.type, took, took, took, repeats=1)


def _densities(device: torch.device, seconds: float, quick: bool) -> Iterator[Measurement]:
    rows = 2**10 if quick else 2**20 if device.type == "cuda" else 2**14
    yield from workloads.densities_and_samples(device, features=6, rows=rows, seconds=2 * seconds, **POWER_MODEL)


def _start(device: torch.device, _seconds: float, _quick: bool) -> Iterator[Measurement]:
    yield from starts(device, POWER_MODEL, features=6, batch=512)


def _one_pass(device: torch.device, seconds: float, quick: bool) -> Iterator[Measurement]:
    """Measure time against the number of features. Coupling layers take one network pass in either direction."""
    too_slow: set[tuple[str, str]] = set()
    for features in (2, 8) if quick else (2, 4, 8, 16, 32, 64, 128):
        points = workloads.one_pass(
            device, features=features, rows=512, hidden=64, seconds=seconds / 4, too_slow=too_slow
        )
        yield from _along("features", features, points)


def _scaling(device: torch.device, seconds: float, quick: bool) -> Iterator[Measurement]:
    """Measure the time of splines against the number of elements and against K."""
    top = 12 if quick else 22 if device.type == "cuda" else 18
    for power in range(10, top + 1, 2):
        points = workloads.splines(device, rows=2**power, num_bins=10, seconds=seconds / 4, rivals=("nflows cubic",))
        yield from _along("elements", 2**power, points)
    for num_bins in (1, 4, 16) if quick else BINS:
        rows = 2**10 if quick else 2**18 if device.type == "cuda" else 2**14
        points = workloads.splines(device, rows=rows, num_bins=num_bins, seconds=seconds / 4, rivals=())
        yield from _along("bins", num_bins, points)


def _along(curve: str, at: int, points: Iterable[Measurement]) -> Iterator[Measurement]:
    return (replace(point, curve=curve, at=at) for point in points)


# Parts in which a peer may be slow come last.
PART_RUNS: dict[str, Callable[[torch.device, float, bool], Iterator[Measurement]]] = {
    "splines": _splines,
    "training": _training,
    "fit": _fit,
    "start": _start,
    "scaling": _scaling,
    "densities": _densities,
    "one-pass": _one_pass,
}
