"""The Triton kernels of two versions of the sources, in turn on one GPU.

    python -m benchmarks.speed.two_versions OLD/src NEW/src -o times.txt [--rounds 4] [--only steffen quadratic]

Each version runs in processes of its own, and old and new processes alternate. First, all kernels are compiled, in one
process for each version and family at a time. A time is the median of the rounds; each round has the median of several
replays of a CUDA graph. The spread is the largest distance of a round of the old version from the median, so a kernel
is marked as slower or faster only if the two versions differ by more than that. With four rounds the command takes
about six minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

# The numbers of params of K bins, by family. The names of cubics are the names of their slopes.
FAMILIES: dict[str, Callable[[int], int]] = {
    "steffen": lambda k: 2 * k + 2,
    "free": lambda k: 3 * k + 1,
    "quadratic": lambda k: 2 * k + 1,
    "rational_quadratic": lambda k: 3 * k + 1,
}
LAYOUTS = {"packed": (10, 33, 128), "columns": (10, 33)}  # how params lie in memory, and the numbers of bins
DIRECTIONS = ("forward", "inverse", "both")  # "both" is the forward and its backward


def calls(family: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Return a name and a function for each kernel of a family, in the version of the sources that is imported."""
    from cubicflow import splines

    name = f"{family}_spline" if family in ("quadratic", "rational_quadratic") else "cubic_spline"
    slopes = {"slopes": family} if name == "cubic_spline" else {}
    generator = torch.Generator("cuda").manual_seed(0)

    def spline(x: torch.Tensor, params: torch.Tensor, *, inverse: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        pair: tuple[torch.Tensor, torch.Tensor]
        pair = getattr(splines, name)(x, params, inverse=inverse, backend="triton", **slopes)
        return pair

    def run(direction: str, x: torch.Tensor, params: torch.Tensor) -> Callable[[], Any]:
        if direction != "both":
            return torch.no_grad()(lambda: spline(x, params, inverse=direction == "inverse"))
        grads = (torch.randn_like(x), torch.randn_like(x))
        inputs = (x.requires_grad_(), params.requires_grad_())
        return lambda: torch.autograd.grad(spline(*inputs), inputs, grads)

    for layout, sizes in LAYOUTS.items():
        for k in sizes:
            elements = 2**20 if k == 10 else 2**18
            for direction in DIRECTIONS:
                x = torch.randn(elements, device="cuda", generator=generator)
                params = torch.randn(elements, FAMILIES[family](k), device="cuda", generator=generator)
                if layout == "columns":
                    params = params.t().contiguous().t()
                yield f"{family} {layout} K={k} {direction}", run(direction, x, params)


def milliseconds(run: Callable[[], Any]) -> float:
    """Return the time of a captured call: the median of seven groups of ten replays."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times: list[float] = []
    for _ in range(8):  # the first group warms up
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(10):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 10)
    return statistics.median(times[1:])


def work(families: list[str], *, timed: bool) -> dict[str, float]:
    """Compile the kernels of these families, and return their times if ``timed``."""
    times = {}
    for family in families:
        for name, run in calls(family):
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                run()
            torch.cuda.synchronize()
            times[name] = milliseconds(run) if timed else 0.0
    return times


def start(source: Path, families: list[str], *, timed: bool) -> subprocess.Popen[str]:
    """Start a process that imports cubicflow from this folder."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.speed.two_versions",
        "--worker",
        "timed" if timed else "compiled",
        "--only",
        *families,
    ]
    environment = os.environ | {"PYTHONPATH": str(source.resolve())}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, float]:
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a process failed with status {process.returncode}; its error is above")
    times: dict[str, float] = json.loads(output.splitlines()[-1])
    return times


def table(old: list[dict[str, float]], new: list[dict[str, float]]) -> str:
    """Return one line for each kernel: the times of both versions, their ratio, the spread, and a verdict."""
    lines = []
    for name in old[0]:
        before = statistics.median(times[name] for times in old)
        after = statistics.median(times[name] for times in new)
        spread = max(abs(times[name] / before - 1) for times in old)
        ratio = after / before
        verdict = "slower" if ratio > 1 + spread else "faster" if ratio < 1 - spread else ""
        figures = f"old {before:.4f} new {after:.4f} ratio {ratio:.3f} spread {spread:.3f}"
        lines.append(f"{name:42s} {figures} {verdict}".rstrip())
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="time the Triton kernels of two versions of the sources")
    parser.add_argument("sources", nargs="*", type=Path, help="the src folders of the old and of the new version")
    parser.add_argument("-o", "--output", type=Path, default=Path("times.txt"))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--worker", choices=("compiled", "timed"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.only, timed=options.worker == "timed")))
        return
    if len(options.sources) != 2:
        parser.error(f"give two src folders, of the old and of the new version; got {len(options.sources)}")
    compiling = [start(source, [family], timed=False) for source in options.sources for family in options.only]
    for process in compiling:
        finish(process)
    rounds = [
        [finish(start(source, options.only, timed=True)) for source in options.sources] for _ in range(options.rounds)
    ]
    old, new = zip(*rounds, strict=True)
    options.output.write_text(table(list(old), list(new)))
    print(options.output.read_text(), end="")


if __name__ == "__main__":
    main()
