"""A process that start.py starts, to measure how long a user waits for the first training steps.

``python -m benchmarks.speed.first_step NAME DEVICE SETTINGS`` prints one line of JSON: the seconds of each part.
At the top, this module imports only the standard library, so that each package pays only for its own imports.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

STEPS = 3
ROWS = 5_120


def cubicflow(device: str, model: dict[str, Any], features: int, batch: int) -> tuple[float, float, Callable[[], Any]]:
    """Import cubicflow and build a flow.

    Returns the time when the imports were done, the time when the flow was on the device, and a function that takes the
    first steps.
    """
    import torch

    from cubicflow.flows import tabular
    from cubicflow.training import fit

    imported = time.perf_counter()
    flow = tabular(
        features, num_layers=model["num_layers"], hidden_features=model["hidden"], num_bins=model["num_bins"]
    ).to(device)
    rows = torch.randn(ROWS, features)
    moved = _now(device)
    settings: dict[str, Any] = {"steps": STEPS, "batch_size": batch, "validation_fraction": 0, "device": device}
    return imported, moved, lambda: fit(flow, rows, progress=False, **settings)


def nflows(device: str, model: dict[str, Any], features: int, batch: int) -> tuple[float, float, Callable[[], Any]]:
    """Import nflows and build a flow. Returns the same values as :func:`cubicflow`.

    nflows has no training loop, so the steps are those of a typical user's loop.
    """
    import torch

    from benchmarks.speed import peers

    make = peers.nflows_maker()
    imported = time.perf_counter()
    peer = make(features, model["num_layers"], model["hidden"], model["num_bins"], torch.device(device))
    rows = torch.randn(ROWS, features).to(device)
    moved = _now(device)
    step = peers.training_step(peer, rows[:batch])
    return imported, moved, lambda: [step() for _ in range(STEPS)]


def _now(device: str) -> float:
    import torch

    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    """Run one package, and print the seconds of each part."""
    name, device, settings = sys.argv[1:]
    begun = time.perf_counter()
    imported, moved, steps = {"cubicflow": cubicflow, "nflows": nflows}[name](device, **json.loads(settings))
    steps()
    stepped = _now(device)
    parts = {"imports": imported - begun, "flow on the device": moved - imported, "first steps": stepped - moved}
    print(json.dumps(parts), flush=True)


if __name__ == "__main__":
    main()
