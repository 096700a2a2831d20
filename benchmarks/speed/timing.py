"""Time and memory of several implementations of one workload, in turn, so that all run under the same conditions."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, kineto_available, profile

from cubicflow.accel.capture import capture

WARM_UPS = 3
TOGETHER_MS = 3.0  # shorter GPU work is timed in groups of runs of about this many milliseconds
LONG = 30.0  # seconds; compiling and capturing take less, so they do not explain a longer first run


@dataclass(frozen=True)
class Measurement:
    """The measurement of one implementation on one workload. Times are in milliseconds, memory is in bytes.

    For a point of a curve, ``curve`` is the name of the curve, and ``at`` is the number that varies along it.
    """

    work: str
    implementation: str
    device: str
    median: float
    p10: float
    p90: float
    repeats: int
    peak_memory: int | None = None
    curve: str = ""
    at: int | None = None


def milliseconds(time: float) -> str:
    """Format a time with three significant digits, and with all digits before the decimal point.

    >>> milliseconds(0.17712), milliseconds(2037.4)
    ('0.177', '2,037')
    """
    return f"{time:,.0f}" if time >= 1000 else f"{time:.3g}"


def measure(
    work: str,
    contenders: Mapping[str, Callable[[], Any]],
    device: torch.device,
    *,
    seconds: float = 2.0,
    most: int = 200,
    memory: bool = True,
) -> list[Measurement]:
    """Run every contender for about ``seconds``, in rounds of one run each.

    A contender that fails is left out, and the reason is printed. Use ``memory=False`` for workloads whose first run
    does more than later runs: no memory is then reported.
    """
    working: dict[str, Callable[[], Any]] = {}
    peaks: dict[str, int | None] = {}
    together: dict[str, int] = {}
    times: dict[str, list[float]] = {}
    gc.collect()
    gc.freeze()  # exclude existing objects from garbage collection: otherwise every collection would scan them
    for name, run in contenders.items():
        try:
            begun = time.perf_counter()
            if memory:
                peaks[name] = peak_of_run(run, device)
            else:
                _milliseconds(run, device)
            first = (time.perf_counter() - begun) * 1e3
            warm_ups: list[float] = [first] if first >= LONG * 1e3 else []  # a long first run counts as a warm-up
            while len(warm_ups) < WARM_UPS - 1 and sum(warm_ups) < seconds * 1e3:
                warm_ups.append(_milliseconds(run, device))
        except Exception as error:  # a peer may fail in any way; the other contenders still run
            print(f"  {work}: {name} left out: {type(error).__name__}: {str(error).splitlines()[:1]}")
            continue
        working[name] = run
        times[name] = [took for took in warm_ups if took >= seconds * 1e3]  # long warm-ups count as measurements
        # Short GPU work is timed in groups of runs: a single run would mostly time the launch of the first kernel.
        together[name] = max(1, round(TOGETHER_MS / warm_ups[-1])) if device.type == "cuda" else 1
    gc.unfreeze()
    while pending := [name for name in working if sum(times[name]) < seconds * 1e3 and len(times[name]) < most]:
        for name in pending:
            times[name].append(_milliseconds(working[name], device, together[name]))
    return [
        Measurement(
            work=work,
            implementation=name,
            device=device.type,
            median=float(np.median(taken)),
            p10=float(np.quantile(taken, 0.1)),
            p90=float(np.quantile(taken, 0.9)),
            repeats=len(taken),
            peak_memory=peaks.get(name),
        )
        for name, taken in times.items()
    ]


def _milliseconds(run: Callable[[], Any], device: torch.device, together: int = 1) -> float:
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start.record()
        for _ in range(together):
            run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / together
    begun = time.perf_counter()
    run()
    return (time.perf_counter() - begun) * 1e3


class Captured:
    """Work replayed as a CUDA graph, as inside a training step.

    The time of a replay is the time of the kernels, without the time that Python takes to launch them. The graph is
    captured at the first call, so that a failed capture counts as a failed contender.
    """

    def __init__(self, run: Callable[[], Any]) -> None:
        self.run = run
        self.graph: torch.cuda.CUDAGraph | None = None
        self.returned: Any = None

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
            return
        # Warm up on a side stream: compilation and the choice of algorithms are not allowed during a capture, and
        # gradients remember the stream of the first pass.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.run()
        torch.cuda.current_stream().wait_stream(stream)
        # Keep the returned tensors alive as long as the graph, because the graph writes into them.
        self.graph, self.returned = capture(self.run, torch.device("cuda", torch.cuda.current_device()))


def peak_of_run(run: Callable[[], Any], device: torch.device) -> int | None:
    """Run once, and return the peak number of bytes in tensors, minus the bytes before the run.

    The peak includes results, new gradients and intermediate values. Returns None if the peak cannot be measured, and
    for a captured graph: a graph allocates its memory at the capture, and a replay allocates no memory.
    """
    return _on_gpu(run, device) if device.type == "cuda" else _on_cpu(run)


def _on_gpu(run: Callable[[], Any], device: torch.device) -> int | None:
    gc.collect()
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return None if isinstance(run, Captured) else torch.cuda.max_memory_allocated(device) - before


def _on_cpu(run: Callable[[], Any]) -> int | None:
    """Measure the peak with torch's profiler, because torch's CPU allocator records no peak."""
    if not kineto_available():
        run()
        return None
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # otherwise kineto logs every start and stop on stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    changes = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        peak = max(peak, held)
    return peak
