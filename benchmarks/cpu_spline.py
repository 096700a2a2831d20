"""The native kernels on the CPU beside our reference and nflows, in one run.

    python -m benchmarks.cpu_spline --out results            # everything
    python -m benchmarks.cpu_spline --out results --quick    # the table alone

Three parts, every row timed in rounds that take each contender once, so that all of them meet the same machine:

    table      2^17 elements, K = 10, float32: forward, inverse, forward + backward, on [0, 1] and on the real line
    elements   forward and forward + backward against the number of elements, K = 10
    bins       the same against K, 2^14 elements

nflows on the real line is its spline on [-3, 3] with linear tails, on [0, 1] its plain one. The floor is a copy of
params (forward + backward: two). Ratios are of medians; on a machine that is shared with others, those of the 10th
percentiles say more, and --threads 1 says most: two threads that meet at a barrier wait for whoever was put off.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from nflows.transforms.splines import cubic as nflows
from torch import Tensor

from cubicflow.bench.timing import Measurement, measure
from cubicflow.splines import cubic_spline, num_params

CPU = torch.device("cpu")
ELEMENTS = [2**power for power in range(6, 21, 2)]
BINS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
OURS, REFERENCE, NFLOWS, FLOOR = "native", "reference", "nflows", "copy of params"
Map = Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor]]


def ours(backend: str, domain: str) -> Map:
    return lambda x, params, inverse: cubic_spline(x, params, inverse=inverse, domain=domain, backend=backend)


def theirs(domain: str, num_bins: int) -> Map:
    def run(x: Tensor, params: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
        pieces = params.split((num_bins, num_bins, 1, 1), -1)
        floors = {"min_bin_width": min(1e-3, 0.1 / num_bins), "min_bin_height": min(1e-3, 0.1 / num_bins)}
        if domain == "unit":
            outputs: tuple[Tensor, Tensor] = nflows.cubic_spline(x, *pieces, inverse=inverse, **floors)
        else:
            outputs = nflows.unconstrained_cubic_spline(x, *pieces, inverse=inverse, tail_bound=3.0, **floors)
        return outputs

    return run


def contenders(mode: str, domain: str, count: int, num_bins: int) -> dict[str, Callable[[], Any]]:
    """What each implementation has to do, by name."""
    generator = torch.Generator().manual_seed(0)
    params = torch.randn(count, num_params("cubic", num_bins, "steffen"), generator=generator)
    x = torch.rand(count, generator=generator) if domain == "unit" else torch.randn(count, generator=generator)
    grad = torch.randn(count, generator=generator)
    x_leaf, params_leaf = x.clone().requires_grad_(), params.clone().requires_grad_()
    maps = {OURS: ours("native", domain), REFERENCE: ours("reference", domain), NFLOWS: theirs(domain, num_bins)}

    def job(run: Map) -> Callable[[], Any]:
        def forward() -> Any:
            with torch.no_grad():
                return run(x, params, mode == "inverse")

        def forward_and_backward() -> Any:
            return torch.autograd.grad(run(x_leaf, params_leaf, False), (x_leaf, params_leaf), (grad, grad))

        return forward_and_backward if mode == "forward + backward" else forward

    def copy() -> Any:
        return [params.clone() for _ in range(2 if mode == "forward + backward" else 1)]

    return {name: job(run) for name, run in maps.items()} | {FLOOR: copy}


def rows(quick: bool) -> Iterator[tuple[str, str, str, int, int]]:
    """(part, mode, domain, elements, K)"""
    for domain in ("unit", "real"):
        for mode in ("forward", "inverse", "forward + backward"):
            yield "table", mode, domain, 2**17, 10
    if quick:
        return
    for mode in ("forward", "forward + backward"):
        for count in ELEMENTS:
            yield "elements", mode, "real", count, 10
        for num_bins in BINS:
            yield "bins", mode, "real", 2**14, num_bins


def report(measurements: list[Measurement]) -> str:
    named = {measurement.implementation: measurement for measurement in measurements}
    if OURS not in named:
        return ""
    mine = named[OURS]
    ratios = [
        f"{name} {named[name].median / mine.median:.1f} ({named[name].p10 / mine.p10:.1f}) x"
        for name in (NFLOWS, REFERENCE, FLOOR)
        if name in named
    ]
    return f"{mine.work}: {mine.median:.3f} ms ({mine.p10:.3f}); " + ", ".join(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of cpu_spline.csv")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each contender on each row")
    parser.add_argument("--quick", action="store_true", help="the table alone")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"{arguments.threads} threads; our time (10th percentile), then how many times it the others take")
    with (arguments.out / "cpu_spline.csv").open("w", newline="") as file:
        fields = ["part", "mode", "domain", "elements", "bins", "threads", *Measurement.__dataclass_fields__]
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        for part, mode, domain, count, num_bins in rows(arguments.quick):
            work = f"{part}: {mode}, {domain}, {count} elements, K = {num_bins}"
            found = measure(work, contenders(mode, domain, count, num_bins), CPU, seconds=arguments.seconds)
            place = dict(zip(fields, (part, mode, domain, count, num_bins, arguments.threads), strict=False))
            writer.writerows(place | measurement.as_dict() for measurement in found)
            file.flush()
            print(report(found), flush=True)


if __name__ == "__main__":
    main()
