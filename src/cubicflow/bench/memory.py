"""The peak memory of a run."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, kineto_available, profile

from cubicflow.bench.captured import Captured


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
