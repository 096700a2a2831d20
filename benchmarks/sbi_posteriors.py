"""Posteriors of simulators, by cubicflow's estimator and by sbi's nsf, compared with reference samples.

    python -m benchmarks.sbi_posteriors run --reference FOLDER --seeds 0:3
    python -m benchmarks.sbi_posteriors run --reference FOLDER --seeds 0:1 --tasks two_moons --methods cubicflow
    python -m benchmarks.sbi_posteriors page                            the page and its table, from the records

FOLDER holds two_moons.npz, gaussian_mixture.npz and slcp.npz with observation_k (C,) and posterior_k (10,000, D), the
reference samples of the sbibm benchmark. A cell is a task, a method and a seed: 10,000 simulations from the prior, one
training, and 10,000 samples for each of four observations. C2ST is defined as in sbibm: the accuracy of a classifier
with two hidden layers in five folds; 0.5 means that samples and reference are indistinguishable. Leakage is the share
of the estimator's samples outside the prior's box. The held-out log density is the mean over 5,000 further simulations.
Each record is a line of results/sbi_posteriors/records.jsonl. A cell that has a record is not run again. Runs use one
thread.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.jsonl_records import add_record, read_records

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "sbi_posteriors"
PAGE = ROOT / "docs" / "results" / "sbi_posteriors.md"
SIMULATIONS = 10_000
HELD_OUT = 5_000
OBSERVATIONS = (1, 2, 3, 4)
SAMPLES = 10_000
FOLDS = 5


class Task(NamedTuple):
    """A simulator with a uniform prior on [-bound, bound]^D."""

    features: int
    bound: float
    simulate: Callable[[Tensor], Tensor]  # (N, D) -> (N, C), draws from torch's default generator


def two_moons(t: Tensor) -> Tensor:
    angle = math.pi * (torch.rand(len(t)) - 0.5)
    radius = 0.1 + 0.01 * torch.randn(len(t))
    crescent = torch.stack([radius * angle.cos() + 0.25, radius * angle.sin()], -1)  # (N, 2)
    return crescent + torch.stack([-(t[:, 0] + t[:, 1]).abs(), t[:, 1] - t[:, 0]], -1) / math.sqrt(2)


def gaussian_mixture(t: Tensor) -> Tensor:
    std = torch.where(torch.rand(len(t), 1) < 0.5, 1.0, 0.1)
    return t + std * torch.randn_like(t)


def slcp(t: Tensor) -> Tensor:
    first, second, correlation = t[:, 2] ** 2, t[:, 3] ** 2, t[:, 4].tanh()  # (N,)
    noise = torch.randn(len(t), 4, 2)
    x = t[:, None, 0] + first[:, None] * noise[..., 0]  # (N, 4)
    along = correlation[:, None] * noise[..., 0] + (1 - correlation**2).sqrt()[:, None] * noise[..., 1]
    y = t[:, None, 1] + second[:, None] * along
    return torch.stack([x, y], -1).flatten(1)  # (N, 8)


TASKS = {
    "two_moons": Task(2, 1.0, two_moons),
    "gaussian_mixture": Task(2, 10.0, gaussian_mixture),
    "slcp": Task(5, 3.0, slcp),
}


def prior_of(task: Task) -> Any:
    from sbi.utils import BoxUniform

    return BoxUniform(-task.bound * torch.ones(task.features), task.bound * torch.ones(task.features))


def simulations(task: Task, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw parameters (N, D) from the prior, and simulate an observation (N, C) for each."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parameters = task.bound * (2 * torch.rand(count, task.features) - 1)
        return parameters, task.simulate(parameters)


def train_nsf(task: Task, parameters: Tensor, x: Tensor) -> Any:
    """Train sbi's spline flow with sbi's defaults."""
    from sbi.inference import NPE

    inference = NPE(prior_of(task), density_estimator="nsf", show_progress_bars=False)
    return inference.append_simulations(parameters, x).train()


def train_cubicflow(task: Task, parameters: Tensor, x: Tensor) -> Any:
    """Train cubicflow's estimator with its defaults, in cubicflow's training loop."""
    from cubicflow.clients.sbi import posterior

    return posterior(prior=prior_of(task)).fit(parameters, x, progress=False)


def train_cubicflow_in_sbi(task: Task, parameters: Tensor, x: Tensor) -> Any:
    """Train cubicflow's estimator with its defaults, in sbi's loop with the learning rate that cubicflow uses."""
    from sbi.inference import NPE

    from cubicflow.clients.sbi import posterior

    prior = prior_of(task)
    inference = NPE(prior, density_estimator=posterior(prior=prior), show_progress_bars=False)
    return inference.append_simulations(parameters, x).train(learning_rate=5e-3)


METHODS: dict[str, Callable[[Task, Tensor, Tensor], Any]] = {
    "nsf": train_nsf,
    "cubicflow": train_cubicflow,
    "cubicflow-sbi-loop": train_cubicflow_in_sbi,
}


def c2st(reference: NDArray[np.float32], samples: NDArray[np.float32], seed: int = 1) -> float:
    """Return the accuracy of sbibm's classifier: two layers of 10 D units, standardised columns, five random folds."""
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neural_network import MLPClassifier

    mean, std = reference.mean(0), reference.std(0, ddof=1)
    rows = (np.concatenate([reference, samples]) - mean) / std
    labels = np.repeat([0, 1], [len(reference), len(samples)])
    width = 10 * rows.shape[1]
    classifier = MLPClassifier((width, width), max_iter=10_000, random_state=seed)
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    return float(cross_val_score(classifier, rows, labels, cv=folds, scoring="accuracy").mean())


@torch.no_grad()
def held_out_log_density(estimator: Any, task: Task, seed: int) -> float:
    """Return the mean log density of further simulations. It needs no reference samples; larger is better."""
    parameters, x = simulations(task, HELD_OUT, 1_000_000 + seed)
    return float(estimator.log_prob(parameters[None], x).mean())


def run_cell(task_name: str, method: str, seed: int, reference: Any) -> dict[str, Any]:
    import cubicflow.clients.sbi  # noqa: F401 - imports sbi and cubicflow before the clock starts

    task = TASKS[task_name]
    parameters, x = simulations(task, SIMULATIONS, seed)
    torch.manual_seed(seed)
    began = time.process_time()  # processor time: other processes may share the machine
    estimator = METHODS[method](task, parameters, x)
    seconds = time.process_time() - began
    estimator.eval()
    print(task_name, method, seed, f"trained in {seconds:.0f} s of CPU time", flush=True)
    scores, leaks = [], []
    torch.manual_seed(10_000 + seed)
    for k in OBSERVATIONS:
        observation = torch.from_numpy(reference[f"observation_{k}"])[None]
        inside, drawn, kept = [], 0, 0
        while kept < SAMPLES:
            batch = estimator.sample((SAMPLES,), observation)[:, 0].detach()  # (S, D)
            inside.append(batch[(batch.abs() <= task.bound).all(-1)])
            drawn, kept = drawn + len(batch), kept + len(inside[-1])
        leaks.append(1 - kept / drawn)
        scores.append(c2st(reference[f"posterior_{k}"], torch.cat(inside)[:SAMPLES].numpy()))
    return {
        "task": task_name,
        "method": method,
        "seed": seed,
        "simulations": SIMULATIONS,
        "c2st": [round(score, 4) for score in scores],
        "leakage": leaks,
        "held_out_log_density": held_out_log_density(estimator, task, seed),
        "train_seconds": round(seconds, 2),
        "parameters": sum(p.numel() for p in estimator.parameters()),
        "versions": {name: version(name) for name in ("sbi", "torch", "scikit-learn")},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread",
    }


def run(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    path = arguments.records / "records.jsonl"
    first, last = (int(end) for end in arguments.seeds.split(":"))
    for seed in range(first, last):
        for task in arguments.tasks:
            reference = np.load(arguments.reference / f"{task}.npz")
            for method in arguments.methods:
                if any((r["task"], r["method"], r["seed"]) == (task, method, seed) for r in read_records(path)):
                    continue
                record = run_cell(task, method, seed, reference)
                add_record(path, record)
                print(task, method, seed, record["c2st"], f"{record['train_seconds']:.0f} s", flush=True)


def summary(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return means over observations and seeds, for each task and method."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        groups[record["task"], record["method"]].append(record)
    return [
        {
            "task": task,
            "method": method,
            "seeds": len(group),
            "c2st": float(np.mean([record["c2st"] for record in group])),
            "c2st_smallest": float(np.min([record["c2st"] for record in group])),
            "c2st_largest": float(np.max([record["c2st"] for record in group])),
            "leakage": float(np.mean([record["leakage"] for record in group])),
            "held_out_log_density": float(np.mean([record["held_out_log_density"] for record in group])),
            "train_seconds": float(np.mean([record["train_seconds"] for record in group])),
        }
        for task in TASKS
        for method in METHODS
        if (group := groups.get((task, method)))
    ]


def page(arguments: argparse.Namespace) -> None:
    """Write the table of means over the seeds, as CSV and between the marks of the page."""
    rows = summary(read_records(arguments.records / "records.jsonl"))
    with (arguments.records / "sbi_posteriors.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    lines = [
        "| task | estimator | seeds | C2ST | from, to | leakage | held-out log density | training seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['task']} | {r['method']} | {r['seeds']} | {r['c2st']:.3f} | {r['c2st_smallest']:.3f}, "
        f"{r['c2st_largest']:.3f} | {r['leakage']:.2%} | {r['held_out_log_density']:.3f} | {r['train_seconds']:.0f} |"
        for r in rows
    ]
    before, _, rest = arguments.page.read_text(encoding="utf-8").partition("<!-- table -->\n")
    after = rest.partition("<!-- end -->")[2]
    text = "\n".join([f"{before}<!-- table -->", *lines, f"<!-- end -->{after}"])
    arguments.page.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("--reference", type=Path, required=True, help="folder of the reference posteriors")
    running.add_argument("--seeds", default="0:3", help="first:last, as in a slice")
    running.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    running.add_argument("--methods", nargs="+", choices=METHODS, default=["nsf", "cubicflow"])
    running.set_defaults(function=run)
    writing = commands.add_parser("page")
    writing.add_argument("--page", type=Path, default=PAGE)
    writing.set_defaults(function=page)
    for command in (running, writing):
        command.add_argument("--records", type=Path, default=RECORDS, help="folder of the records")
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
