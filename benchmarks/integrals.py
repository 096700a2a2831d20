"""Integrals with known values, by cubicflow.integrate, vegas, madnis and plain Monte Carlo.

    python -m benchmarks.integrals run --seeds 0:20                     every case and every method that is installed
    python -m benchmarks.integrals run --seeds 0:5 --cases camel-8 --methods cubicflow plain
    python -m benchmarks.integrals run --seeds 0:50 --cases camel-8 --evaluations 100000 --methods cubicflow
    python -m benchmarks.integrals page                                 the page and its table, from the records

Every method has the same number of evaluations, including those for adaptation and training. vegas is used as in its
manual: five iterations adapt with a quarter of the evaluations, and five more with the rest give the result; once with
beta = 0 and once with 0.75. Each record is a line of results/integrals/records.jsonl. A case, method and seed that has
a record is not run again. A run uses one thread, so several processes can share the seeds.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import cubicflow as cf

Floats = NDArray[np.float64]
ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "integrals"
PAGE = ROOT / "docs" / "results" / "integrals.md"
COUNT = 1_000_000


class Case(NamedTuple):
    """An integrand on the unit cube, and its exact integral."""

    title: str
    features: int
    function: Callable[[Floats], Floats]
    exact: float


def normal_mass(low: float, high: float) -> float:
    """Return the probability of [low, high] under a standard normal."""
    return (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2


def humps(features: int, centers: tuple[float, ...], width: float = 0.2) -> Case:
    """Return a sum of Gaussians centered on the diagonal. Each has the integral 1 / len(centers) over all of space."""
    scale = (2 * math.pi * width**2) ** (-features / 2) / len(centers)

    def function(x: Floats) -> Floats:
        total = sum(np.exp(-((x - center) ** 2).sum(1) / (2 * width**2)) for center in centers)
        return np.asarray(scale * total)

    masses = [normal_mass(-center / width, (1 - center) / width) for center in centers]
    name = "camel" if len(centers) == 2 else "Gaussian"
    return Case(f"{name}, D = {features}", features, function, sum(m**features for m in masses) / len(centers))


def ring(radius: float = 0.3, width: float = 0.03) -> Case:
    """Return a Gaussian profile around a circle in the middle of the square. Less than 1e-9 of it lies outside."""
    at_center = width**2 * math.exp(-(radius**2) / (2 * width**2))
    rest = radius * width * math.sqrt(math.pi / 2) * (1 + math.erf(radius / (width * math.sqrt(2))))

    def function(x: Floats) -> Floats:
        return np.asarray(np.exp(-((np.hypot(x[:, 0] - 0.5, x[:, 1] - 0.5) - radius) ** 2) / (2 * width**2)))

    return Case("ring, D = 2", 2, function, 2 * math.pi * (at_center + rest))


def sheet(features: int, width: float = 0.1) -> Case:
    """Return a Gaussian of the sum of all columns: a thin layer across the diagonal, far from any product of columns.
    Its exact integral is computed over frequencies: the Fourier transform of the Gaussian times the transform of a
    sum of uniform numbers."""

    def function(x: Floats) -> Floats:
        return np.asarray(np.exp(-((x.sum(1) - features / 2) ** 2) / (2 * width**2)))

    k = np.linspace(-12 / width, 12 / width, 400_001)
    transform = np.exp(-((width * k) ** 2) / 2) * np.sinc(k / (2 * math.pi)) ** features
    exact = float(np.trapezoid(transform, k)) * width * math.sqrt(2 * math.pi) / (2 * math.pi)
    return Case(f"sheet, D = {features}", features, function, exact)


CAMEL = (1 / 3, 2 / 3)
CASES = {
    "ring-2": ring(),
    "camel-4": humps(4, CAMEL),
    "camel-8": humps(8, CAMEL),
    "camel-16": humps(16, CAMEL),
    "gaussian-16": humps(16, (0.5,)),
    "sheet-4": sheet(4),
    "sheet-8": sheet(8),
}
Found = tuple[float, float, int]  # estimate, reported error, evaluations


def run_cubicflow(case: Case, evaluations: int, seed: int) -> Found:
    found = cf.integrate(case.function, [(0, 1)] * case.features, evaluations, seed=seed)
    return found.estimate, found.error, found.evaluations


def run_plain(case: Case, evaluations: int, seed: int) -> Found:
    generator = np.random.default_rng(seed)
    values = np.concatenate([case.function(generator.random((n, case.features))) for n in _pieces(evaluations)])
    return float(values.mean()), float(values.std() / math.sqrt(evaluations)), evaluations


def run_vegas(beta: float) -> Callable[[Case, int, int], Found]:
    def run(case: Case, evaluations: int, seed: int) -> Found:
        import vegas

        count = 0

        @vegas.lbatchintegrand  # type: ignore[untyped-decorator]
        def counted(x: Floats) -> Floats:
            nonlocal count
            count += len(x)
            return case.function(np.asarray(x))

        np.random.seed(seed)  # noqa: NPY002 - the generator vegas draws from
        integrator = vegas.Integrator([[0, 1]] * case.features)
        integrator(counted, nitn=5, neval=evaluations // 20, beta=beta)
        found = integrator(counted, nitn=5, neval=(evaluations - count) // 5, beta=beta, adapt=False)
        return float(found.mean), float(found.sdev), count

    return run


def run_madnis(case: Case, evaluations: int, seed: int) -> Found:
    """Train madnis's flow with half of the evaluations, in batches of 1,024, and estimate with the other half."""
    from madnis.integrator import Integrator

    torch.manual_seed(seed)
    count = 0

    def counted(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += len(x)
        return torch.from_numpy(case.function(x.double().numpy())).to(x.dtype)

    integrator = Integrator(counted, dims=case.features, batch_size=1024)
    integrator.train(evaluations // 2048)
    sums = np.zeros(3)
    for n in _pieces(evaluations - count):
        weights = integrator.sample(n).weights.double().numpy()
        sums += [len(weights), weights.sum(), (weights**2).sum()]
    mean, square = sums[1] / sums[0], sums[2] / sums[0]
    return float(mean), math.sqrt((square - mean**2) / sums[0]), count


METHODS: dict[str, tuple[str | None, Callable[[Case, int, int], Found]]] = {
    "cubicflow": (None, run_cubicflow),
    "vegas, beta = 0": ("vegas", run_vegas(0.0)),
    "vegas, beta = 0.75": ("vegas", run_vegas(0.75)),
    "madnis": ("madnis", run_madnis),
    "plain": (None, run_plain),
}


def _pieces(evaluations: int) -> list[int]:
    whole, rest = divmod(evaluations, 100_000)
    return [100_000] * whole + [rest] * (rest > 0)


def run(arguments: argparse.Namespace) -> None:
    """Run the chosen cases that have no record yet."""
    first, _, last = arguments.seeds.partition(":")
    seeds = range(int(first), int(last or int(first) + 1))
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / arguments.records
    there = {key(record) for record in read(arguments.output)}
    for name in arguments.cases or CASES:
        for method in arguments.methods or METHODS:
            module, function = METHODS[method]
            if module and find_spec(module) is None:
                print(f"{method}: not installed")
                continue
            for seed in seeds:
                if (name, method, arguments.evaluations, seed) in there:
                    continue
                start = time.perf_counter()
                estimate, error, count = function(CASES[name], arguments.evaluations, seed)
                record = {
                    "case": name,
                    "method": method,
                    "evaluations": arguments.evaluations,
                    "seed": seed,
                    "made": count,
                    "estimate": estimate,
                    "error": error,
                    "exact": CASES[name].exact,
                    "seconds": round(time.perf_counter() - start, 2),
                    "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread",
                    "cubicflow": cf.__version__,
                }
                with file.open("a") as lines:
                    lines.write(json.dumps(record) + "\n")
                print(f"{name} {method} {seed}: {estimate / record['exact'] - 1:+.1e} ± {error / record['exact']:.1e}")


def read(folder: Path) -> list[dict[str, Any]]:
    """Return all records of a folder."""
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.open()]


def key(record: dict[str, Any]) -> tuple[str, str, int, int]:
    return record["case"], record["method"], record["evaluations"], record["seed"]


def summary(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the errors over the seeds, for each case, number of evaluations and method."""
    groups: dict[tuple[int, str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        groups[record["evaluations"], record["case"], record["method"]].append(record)
    order = {name: i for i, name in enumerate([*CASES, *METHODS])}
    rows = []
    for (evaluations, case, method), group in sorted(
        groups.items(), key=lambda item: (-item[0][0], order[item[0][1]], order[item[0][2]])
    ):
        errors = np.array([record["estimate"] / record["exact"] - 1 for record in group])
        reported = np.array([record["error"] / record["exact"] for record in group])
        rows.append(
            {
                "case": CASES[case].title,
                "evaluations": evaluations,
                "method": method,
                "seeds": len(group),
                "error": float(np.sqrt((errors**2).mean())),
                "reported": float(np.sqrt((reported**2).mean())),
                "pull_mean": float((errors / reported).mean()),
                "pull_spread": float((errors / reported).std(ddof=1)) if len(group) > 1 else math.nan,
                "seconds": float(np.median([record["seconds"] for record in group])),
            }
        )
    return rows


def page(arguments: argparse.Namespace) -> None:
    """Write integrals.csv beside the records, and the table of docs/results/integrals.md."""
    rows = summary(read(arguments.output))
    with (arguments.output / "integrals.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines = [
        "| integral | evaluations | method | seeds | error | reported error | pulls: mean, spread | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['case']} | {row['evaluations']:,} | {row['method']} | {row['seeds']} | {row['error']:.1e} | "
        f"{row['reported']:.1e} | {row['pull_mean']:+.2f}, {row['pull_spread']:.2f} | {row['seconds']:.1f} |"
        for row in rows
    ]
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else "# Integrals\n\n<!-- table -->\n<!-- end -->\n"
    before, rest = text.split("<!-- table -->\n")
    after = rest.split("<!-- end -->")[1]
    table = "\n".join(lines)
    PAGE.write_text(f"{before}<!-- table -->\n{table}\n<!-- end -->{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--seeds", default="0:20", help="first:last, without the last, as in a slice")
    runs.add_argument("--cases", nargs="+", choices=CASES)
    runs.add_argument("--methods", nargs="+", choices=METHODS)
    runs.add_argument("--evaluations", type=int, default=COUNT)
    runs.add_argument("--records", default="records.jsonl", help="file that the records are appended to")
    runs.set_defaults(command=run)
    pages = commands.add_parser("page")
    pages.set_defaults(command=page)
    for command in (runs, pages):
        command.add_argument("--output", type=Path, default=RECORDS, help="folder of the records")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.command(arguments)


if __name__ == "__main__":
    main()
