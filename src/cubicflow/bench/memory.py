"""How much memory a run takes at its peak."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, kineto_available, profile

from cubicflow.bench.captured import Captured


def peak_of_run(run: Callable[[], Any], device: torch.device) -> int | None:
    """Run once. The bytes of tensors that it held at its peak, beyond what was there before it: results, gradients,
    where they do not exist yet, and whatever lies between. None where nobody can tell, and for a captured graph, which
    has its memory from the capture on and allocates none when it runs."""
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
    """torch's allocator for the CPU keeps no peak, but the profiler sees what it gives and takes."""
    if not kineto_available():
        run()
        return None
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # it would announce every start and stop on stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    changes = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        peak = max(peak, held)
    return peak
