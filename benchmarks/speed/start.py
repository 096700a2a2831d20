"""The time from the start of Python to the first training steps, first with an empty kernel cache, then with a full
one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.speed import peers
from benchmarks.speed.timing import Measurement
from benchmarks.speed.workloads import OURS

COLD, WARM = f"{OURS}, nothing compiled yet", f"{OURS}, second start"


def starts(device: torch.device, model: dict[str, Any], *, features: int, batch: int) -> Iterator[Measurement]:
    """Time fresh processes from their start until they report that they have taken their first steps.

    Triton's cache is empty at the first start; the second start finds the kernels of the first.
    """
    settings = json.dumps({"model": model, "features": features, "batch": batch})
    found: list[tuple[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as cache:
        contenders = [(COLD, "cubicflow"), (WARM, "cubicflow")]
        contenders += [("nflows cubic", "nflows")] if "nflows" in peers.installed() else []
        for implementation, name in contenders:
            try:
                found.append((implementation, _start(name, device, settings, cache)))
            except RuntimeError as error:  # a peer may fail in any way; the other contenders still run
                print(f"  cold start: {implementation} left out: {error}")
    for part in ("", "imports", "flow on the device", "first steps"):
        for implementation, seconds in found:
            took = seconds[part] * 1e3
            work = f"cold start: {part}" if part else "cold start, POWER model"
            yield Measurement(work, implementation, device.type, took, took, took, repeats=1)


def _start(name: str, device: torch.device, settings: str, cache: str) -> dict[str, float]:
    """Return the total seconds under the key "", and the seconds of each part as the process measured them."""
    command = [sys.executable, "-m", "benchmarks.speed.first_step", name, device.type, settings]
    with tempfile.TemporaryFile("w+") as errors:
        begun = time.perf_counter()
        with subprocess.Popen(  # this program
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "TRITON_CACHE_DIR": cache},
        ) as process:
            for line in process.stdout or ():
                took = time.perf_counter() - begun  # excludes the exit of the process: no user waits for it
                if line.startswith("{"):
                    parts: dict[str, float] = json.loads(line)
                    return {"": took, **parts}
        errors.seek(0)
        last = errors.read().strip().splitlines()[-1:]
    raise RuntimeError(f"status {process.returncode}: {' '.join(last)}")
