"""Validation scores of settings for MINIBOONE. No test row is scored.

    python -m paper.miniboone_settings [--first 0] [--last 32] [--device cuda]

The settings are tried in order, with seed 0. CUBICFLOW_DATA names the data folder. Each fit is a line of
results/table-1/miniboone_settings.csv; settings with a line are not tried again. Settings 0 to 25 are for the
autoregressive flow: the first 14 were chosen beforehand, the others after a look at the scores of the first. The last
six vary the power of the weights, for the coupling layers of the recipe.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

from benchmarks.machine import machine, name_of

from cubicflow.flows import tabular
from cubicflow.training import fit
from paper.data import load_benchmark

PATH = Path(__file__).parent.parent / "results" / "table-1" / "miniboone_settings.csv"
FLOW = {"layer": "autoregressive", "num_layers": 5, "hidden_features": 192, "num_bins": 6, "dropout": 0.5}
TRAINING = {
    "steps": 20_000,
    "batch_size": 128,
    "learning_rate": 1e-3,
    "validate_every": 200,
    "log_every": 40,
    "patience": 15,
    "weight_decay": 0.01,
    "beta2": 0.98,
    "warmup_steps": 200,
}
WEIGHT_POWER = 0.3  # as in the recipe of table 1
COUPLING: dict[str, Any] = {
    "layer": "coupling",
    "hidden_features": 64,
    "num_bins": 10,
    "dropout": 0.2,
    "weight_decay": 0.0,
    "beta2": 0.999,
}
WIDE: dict[str, Any] = {"hidden_features": 384, "dropout": 0.6}
DEEP = {**WIDE, "num_layers": 8}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"num_bins": 4},
    {"hidden_features": 256},
    {"hidden_features": 256, "num_bins": 4, "dropout": 0.6},
    {"num_layers": 8},
    {"affine_first": True},
    {"hidden_features": 256, "dropout": 0.6},
    WIDE,
    {"num_layers": 3},
    {"num_bins": 3},
    {"base_components": 5},
    {"weight_decay": 0.05},
    {"hidden_features": 256, "num_bins": 4},
    {**WIDE, "num_bins": 4, "num_layers": 3},
    {**WIDE, "weight_decay": 0.05},
    {**DEEP, "weight_decay": 0.1},
    {**WIDE, "hidden_features": 512, "weight_decay": 0.05},
    {"hidden_features": 512, "dropout": 0.7, "weight_decay": 0.05},
    {**DEEP, "base_components": 5, "weight_decay": 0.05},
    {**WIDE, "num_bins": 8, "base_components": 5, "weight_decay": 0.05},
    {**WIDE, "weight_decay": 0.2},
    {**WIDE, "hidden_features": 512, "num_layers": 10, "weight_decay": 0.1},
    {**DEEP, "weight_decay": 0.3},
    {**DEEP, "weight_decay": 0.1, "batch_size": 256},
    {**WIDE, "base_components": 10, "weight_decay": 0.1},
    {**DEEP, "dropout": 0.7, "num_bins": 8, "weight_decay": 0.1},
    *({**COUPLING, "weight_power": power} for power in (0.0, 0.2, 0.3, 0.5, 0.7, 1.0)),
]
COLUMNS = ("number", "settings", "validation", "steps", "best_step", "machine")


def in_words(settings: dict[str, Any]) -> str:
    """
    >>> in_words({"num_bins": 4, "dropout": 0.6})
    'num_bins=4 dropout=0.6'
    """
    return " ".join(f"{name}={value}" for name, value in settings.items()) or "defaults"


def tried(path: Path) -> set[int]:
    """Return the numbers of the settings that have a line."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {int(row["number"]) for row in csv.DictReader(file)}


def try_settings(number: int, device: str) -> list[Any]:
    """Fit one flow, and return its line: the best mean log likelihood of the validation rows, in nats."""
    table = load_benchmark("miniboone")
    chosen = {"weight_power": WEIGHT_POWER, **SETTINGS[number]}
    weights = None if table.weights is None else table.weights ** chosen.pop("weight_power")
    flow = {**FLOW, **{name: value for name, value in chosen.items() if name not in TRAINING}}
    training = {**TRAINING, **{name: value for name, value in chosen.items() if name in TRAINING}}
    made = tabular(table.features, **flow, seed=0)
    rows = (table.train, None, weights)
    fitted = fit(made, rows, table.validation, progress=False, seed=0, device=device, **training)
    assert fitted.validation_loss is not None
    where = name_of(machine(device))
    return [number, in_words(SETTINGS[number]), f"{-fitted.validation_loss:.4f}", fitted.steps, fitted.best_step, where]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=len(SETTINGS), help="one past the last number")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    for number in sorted(set(range(arguments.first, arguments.last)) - tried(PATH)):
        line = try_settings(number, arguments.device)
        new = not PATH.exists()
        with PATH.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, line] if new else [line])
        print(*line, flush=True)


if __name__ == "__main__":
    main()
