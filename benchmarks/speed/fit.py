"""The speed of ``cubicflow.training.fit`` itself, with its validations and checkpoints, read from its own metrics.

``python -m benchmarks.speed.fit --device cuda`` prints one line of JSON. The module uses only the public names of
cubicflow, so that PYTHONPATH can choose another version of the package.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from itertools import pairwise
from typing import Any

import torch

from cubicflow.flows import tabular
from cubicflow.training import fit

FEATURES, BATCH = 6, 512
ROWS, VALIDATION_ROWS = 1_659_917, 184_435  # of POWER
CHECKPOINT_SECONDS = 10.0  # six times as often as by default, so that a short run has one


def speed_of_fit(
    device: str, *, steps: int, validate_every: int, rows: int = ROWS, validation_rows: int = VALIDATION_ROWS
) -> dict[str, float]:
    """Fit POWER's model to drawn rows, and return milliseconds by name.

    ``step`` is the median over readings without a validation, ``validation`` one validation of the raw and the averaged
    weights, ``fit`` the mean time of a step from the first validation to the last one, with all that a fit does, and
    ``first step`` the step that compiles and captures. Versions that do not report the first step apart leave it out.
    """
    torch.manual_seed(0)
    x = torch.randn(rows + validation_rows, FEATURES)
    x[:, 1:] += 0.5 * x[:, :-1] ** 2
    flow = tabular(FEATURES, num_layers=10, hidden_features=256, num_bins=10)
    settings: dict[str, Any] = {"steps": steps, "batch_size": BATCH, "validate_every": validate_every, "patience": 0}
    settings |= {"log_every": max(validate_every // 10, 1), "checkpoint_seconds": CHECKPOINT_SECONDS}
    with tempfile.TemporaryDirectory() as folder:
        result = fit(flow, x[:rows], x[rows:], run=f"{folder}/run", device=device, progress=False, **settings)
    return milliseconds(result.history)


def milliseconds(history: list[dict[str, Any]]) -> dict[str, float]:
    """Return the times of :func:`speed_of_fit` from the lines of metrics.jsonl, in milliseconds.

    The rows per second of a line are those since the reading before it, with the validation after that reading. A
    line's seconds are taken after its own validation.

    >>> steps = [{"step": s, "rows_per_second": 512 / 0.002, "seconds": 0.002 * s} for s in (100, 200, 300)]
    >>> steps[2] |= {"validation_loss": 1.0, "seconds": 0.65}
    >>> after = {"step": 400, "rows_per_second": 100 * 512 / 0.25, "seconds": 0.85}
    >>> last = {"step": 500, "rows_per_second": 512 / 0.002, "seconds": 1.1, "validation_loss": 1.0}
    >>> {name: round(found, 3) for name, found in milliseconds([*steps, after, last]).items()}
    {'step': 2.0, 'validation': 50.0, 'fit': 2.25}
    """
    steps, validations = [], []
    for before, line in pairwise(history):
        interval = (line["step"] - before["step"]) * BATCH / line["rows_per_second"]  # seconds between the readings
        if "validation_loss" not in before:
            steps.append(interval / (line["step"] - before["step"]))
            if "validation_loss" in line:
                validations.append(line["seconds"] - before["seconds"] - interval)
    validated = [line for line in history if "validation_loss" in line]
    first, last = validated[0], validated[-1]
    found = {"step": statistics.median(steps), "validation": statistics.median(validations)}
    if last["step"] > first["step"]:
        found["fit"] = (last["seconds"] - first["seconds"]) / (last["step"] - first["step"])
    if "first_step_seconds" in history[0]:
        found["first step"] = history[0]["first_step_seconds"]
    return {name: 1e3 * seconds for name, seconds in found.items()}


def main() -> None:
    """Measure, and print the milliseconds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=8_000)
    parser.add_argument("--validate-every", type=int, default=2_000)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--validation-rows", type=int, default=VALIDATION_ROWS)
    print(json.dumps(speed_of_fit(**vars(parser.parse_args()))), flush=True)


if __name__ == "__main__":
    main()
