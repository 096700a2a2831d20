"""Time several implementations of one piece of work in turn, so that all of them meet the same machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

WARM_UPS = 3
TOGETHER_MS = 3.0


@dataclass(frozen=True)
class Measurement:
    """One implementation on one piece of work. Times in milliseconds, memory in bytes.

    A point of a curve says which curve, and the number that varies along it.
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

    def as_dict(self) -> dict[str, Any]:
        """A row of the CSV."""
        return asdict(self)


def milliseconds(time: float) -> str:
    """Three digits, and all of those before the point.

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
) -> list[Measurement]:
    """Run every contender about ``seconds``, in rounds that take each of them once. One that fails is left out, and the
    reason is printed."""
    working: dict[str, Callable[[], Any]] = {}
    memory: dict[str, int | None] = {}
    for name, run in contenders.items():
        try:
            memory[name] = _peak_memory(run, device)
            begun = time.perf_counter()
            for _ in range(WARM_UPS - 1):
                if time.perf_counter() - begun < seconds:  # what takes that long needs no more warming
                    _milliseconds(run, device)
            working[name] = run
        except Exception as error:  # a peer may fail in any way; the others still run
            print(f"  {work}: {name} left out: {type(error).__name__}: {str(error).splitlines()[:1]}")  # noqa: T201
    # Short work on a GPU is timed several runs at once: one alone would mostly time the start of the first kernel.
    together = dict.fromkeys(working, 1)
    if device.type == "cuda":
        together = {name: max(1, round(TOGETHER_MS / _milliseconds(run, device))) for name, run in working.items()}
    times: dict[str, list[float]] = {name: [] for name in working}
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
            peak_memory=memory[name],
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
        elapsed: float = start.elapsed_time(end) / together
        return elapsed
    begun = time.perf_counter()
    run()
    return (time.perf_counter() - begun) * 1e3


def _peak_memory(run: Callable[[], Any], device: torch.device) -> int | None:
    """Bytes allocated on the GPU by one run, beyond what was there before it."""
    if device.type != "cuda":
        run()
        return None
    gc.collect()
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
