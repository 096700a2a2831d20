"""nessai's four-dimensional Rosenbrock problem, with nessai's default flow and with cubicflow's.

    python -m benchmarks.nessai_evidence run --seeds 0:5
    python -m benchmarks.nessai_evidence page                           the page and its table, from the records

The likelihood is exp(-sum of 100 (x[i+1] - x[i]^2)^2 + (1 - x[i])^2), and the prior is uniform on [-5, 5]^4. The exact
evidence is a chain of one-dimensional integrals, computed by quadrature to all digits. Both flows have nessai's
defaults: four couplings, networks of eight units, and nessai's training. Each record is a line of
results/nessai_evidence/records.jsonl. A method and seed that has a record is not run again. Runs use one thread.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import platform
import tempfile
import time
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.jsonl_records import add_record, read_records

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "nessai_evidence"
PAGE = ROOT / "docs" / "results" / "nessai_evidence.md"
DIMENSIONS = 4
BOUND = 5.0
LIVE_POINTS = 1_000
METHODS = ("nessai", "cubicflow")


def exact_log_evidence(dimensions: int = DIMENSIONS, points: int = 4_001) -> float:
    """Return the log evidence by the trapezium rule, one coordinate at a time from the last. The step is a thirtieth of
    the narrowest peak's width, so small that only rounding errors remain."""
    x = np.linspace(-BOUND, BOUND, points)
    step = np.full(points, x[1] - x[0])
    step[[0, -1]] /= 2
    across = np.exp(-100 * (x[None] - x[:, None] ** 2) ** 2)  # (from, to)
    ends = [math.erf(10 * (BOUND - a * a)) - math.erf(10 * (-BOUND - a * a)) for a in x]
    rest = math.sqrt(math.pi) / 20 * np.array(ends)  # the last coordinate, given the one before
    along = np.exp(-((1 - x) ** 2))
    for _ in range(dimensions - 2):
        rest = across @ (step * along * rest)
    return math.log(float((step * along * rest).sum())) - dimensions * math.log(2 * BOUND)


def rosenbrock() -> Any:
    """Return the problem as a nessai model."""
    from nessai.model import Model

    class Rosenbrock(Model):  # type: ignore[misc]
        def __init__(self) -> None:
            self.names = [f"x_{i}" for i in range(DIMENSIONS)]
            self.bounds = {name: [-BOUND, BOUND] for name in self.names}

        def log_prior(self, x: Any) -> Any:
            return np.log(self.in_bounds(x), dtype=float) - DIMENSIONS * math.log(2 * BOUND)

        def log_likelihood(self, x: Any) -> Any:
            x = self.unstructured_view(x)
            return -(100 * (x[..., 1:] - x[..., :-1] ** 2) ** 2 + (1 - x[..., :-1]) ** 2).sum(-1)

    return Rosenbrock()


def run_cell(method: str, seed: int, live_points: int) -> dict[str, Any]:
    from nessai.flowsampler import FlowSampler

    from cubicflow.clients.nessai import NessaiFlow

    torch.manual_seed(seed)
    began = time.process_time()  # processor time: other processes may share the machine
    with tempfile.TemporaryDirectory() as folder:
        sampler = FlowSampler(
            rosenbrock(),
            output=folder,
            nlive=live_points,
            seed=seed,
            flow_config={"flow": NessaiFlow} if method == "cubicflow" else {},
            resume=False,
            plot=False,
            signal_handling=False,
        )
        sampler.run(plot=False, save=False)
    return {
        "method": method,
        "seed": seed,
        "live_points": live_points,
        "log_evidence": float(sampler.log_evidence),
        "reported_error": float(sampler.log_evidence_error),
        "exact": exact_log_evidence(),
        "likelihood_calls": int(sampler.ns.total_likelihood_evaluations),
        "trainings": int(sampler.ns.proposal.training_count),
        "seconds": round(time.process_time() - began, 2),
        "versions": {name: version(name) for name in ("nessai", "torch")},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread",
    }


def run(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    path = arguments.records / "records.jsonl"
    first, last = (int(end) for end in arguments.seeds.split(":"))
    for seed in range(first, last):
        for method in arguments.methods:
            if any((r["method"], r["seed"]) == (method, seed) for r in read_records(path)):
                continue
            record = run_cell(method, seed, arguments.live_points)
            add_record(path, record)
            print(json.dumps(record), flush=True)


def page(arguments: argparse.Namespace) -> None:
    """Write the table of means over the seeds, as CSV and between the marks of the page."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in read_records(arguments.records / "records.jsonl"):
        groups[record["method"]].append(record)
    rows = []
    for method in METHODS:
        if found := groups[method]:
            error = [r["log_evidence"] - r["exact"] for r in found]
            pulls = [e / r["reported_error"] for e, r in zip(error, found, strict=True)]
            rows.append(
                {
                    "flow": method,
                    "seeds": len(found),
                    "log_evidence": float(np.mean([r["log_evidence"] for r in found])),
                    "exact": found[0]["exact"],
                    "reported_error": float(np.mean([r["reported_error"] for r in found])),
                    "mean_pull": float(np.mean(pulls)),
                    "deviation_of_pulls": float(np.std(pulls, ddof=1)) if len(pulls) > 1 else math.nan,
                    "largest_pull": float(np.max(np.abs(pulls))),
                    "likelihood_calls": float(np.mean([r["likelihood_calls"] for r in found])),
                    "seconds": float(np.median([r["seconds"] for r in found])),
                }
            )
    with (arguments.records / "nessai_evidence.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    head = (
        "| flow | seeds | log evidence | exact | reported error | mean pull | deviation of pulls | largest pull | "
        "likelihood calls | seconds |"
    )
    lines = [head, "|---|---|---|---|---|---|---|---|---|---|"]
    lines += [
        f"| {r['flow']} | {r['seeds']} | {r['log_evidence']:.3f} | {r['exact']:.3f} | {r['reported_error']:.3f} | "
        f"{r['mean_pull']:+.2f} | {r['deviation_of_pulls']:.2f} | {r['largest_pull']:.2f} | "
        f"{r['likelihood_calls']:,.0f} | {r['seconds']:.0f} |"
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
    running.add_argument("--seeds", default="0:5", help="first:last, as in a slice")
    running.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    running.add_argument("--live-points", type=int, default=LIVE_POINTS)
    running.set_defaults(function=run)
    writing = commands.add_parser("page")
    writing.add_argument("--page", type=Path, default=PAGE)
    writing.set_defaults(function=page)
    for command in (running, writing):
        command.add_argument("--records", type=Path, default=RECORDS)
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
