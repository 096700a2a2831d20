"""The kernels of a captured training step on a GPU, by name.

    python -m benchmarks.step_kernels [FEATURES] [--paper] -o kernels.csv

Prints the time of a step without the profiler, then the number of kernels in it and their summed time. The file has a
line for each name of a kernel: how many a step launches on all streams, and the microseconds of all of them. Without a
GPU, the command lists the operators of a plain step on the CPU.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import cubicflow as cf
from benchmarks.speed.workloads import our_step

STEPS = 20  # steps under the profiler


def milliseconds(step: Any, device: str) -> float:
    """Return the median time of a step over groups of steps."""
    times = []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS * 1e3)
    return statistics.median(times)


def kernels(step: Any, device: str) -> tuple[Counter[str], Counter[str]]:
    """Return the number and the microseconds of the kernels of a step, by name."""
    activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiled:
        for _ in range(STEPS):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
    counts, times = Counter[str](), Counter[str]()
    for event in profiled.events() or []:
        if (event.device_type.name == "CUDA") == (device == "cuda"):
            counts[event.name] += 1
            times[event.name] += event.time_range.elapsed_us()
    return counts, times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("features", nargs="?", type=int, default=6)
    parser.add_argument("--paper", action="store_true", help="the model as the paper describes it")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(512, options.features, generator=generator).to(device)
    flow = cf.flows.tabular(options.features, hidden_features=256, paper=options.paper).to(device)
    step = our_step(flow, x)
    for _ in range(5):
        step()
    print(f"{milliseconds(step, device):.3f} ms a step")
    counts, times = kernels(step, device)
    print(f"{counts.total() / STEPS:.0f} kernels a step, {times.total() / STEPS / 1e3:.3f} ms in all")
    with options.output.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["kernel", "count", "microseconds"])
        for name, spent in times.most_common():
            writer.writerow([name, round(counts[name] / STEPS, 2), round(spent / STEPS, 2)])


if __name__ == "__main__":
    main()
