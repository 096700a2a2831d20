"""MINIBOONE on two CPU cores: a small flow, dropout, early stopping on validation.

    python benchmarks/miniboone_cpu.py --data-dir DATA

DATA (or the environment variable CUBICFLOW_DATA) is the folder that holds miniboone/. Row weights are used where the
data have them. The figure is the validation log likelihood; the test rows are not looked at. Threads are torch's own
choice, or OMP_NUM_THREADS.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

import cubicflow as cf
from cubicflow.data.benchmarks import load_benchmark
from cubicflow.training import fit

FLOW: dict[str, Any] = {"num_layers": 5, "hidden_features": 64, "num_blocks": 2, "num_bins": 8, "dropout": 0.2}
TRAINING: dict[str, Any] = {"learning_rate": 1e-3, "batch_size": 128, "validate_every": 100, "patience": 15}
GOAL = -17.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--minutes", type=float, default=9.5, help="of training, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=Path, default=None, help="a folder for the run")
    arguments = parser.parse_args()
    table = load_benchmark("miniboone", arguments.data_dir)
    print(table.note)
    torch.manual_seed(arguments.seed)
    flow = cf.flows.tabular(table.features, **FLOW)
    began = time.perf_counter()
    result = fit(
        flow,
        (table.train, None, table.weights),
        table.validation,
        run=arguments.run,
        time_budget=60 * arguments.minutes,
        seed=arguments.seed,
        device="cpu",
        **TRAINING,
    )
    minutes = (time.perf_counter() - began) / 60
    log_likelihood = -(result.validation_loss or float("inf"))
    print(
        f"validation {log_likelihood:.2f} nats at step {result.best_step:,} ({result.weights} weights); "
        f"{result.steps:,} steps in {minutes:.1f} minutes on {torch.get_num_threads()} threads, ended by "
        f"{result.stopped}"
    )
    if log_likelihood < GOAL or minutes > 10:
        sys.exit(f"the goal is better than {GOAL} nats in under 10 minutes")


if __name__ == "__main__":
    main()
