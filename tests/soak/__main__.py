"""Run the attacks one after the other, and print a line of counts for each: python -m tests.soak [NAME ...].

The exit status is 1 if any attempt failed. Each failure is a line on standard error that says how to repeat it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import torch
from tests.helpers import changing_tables
from tests.helpers.counts import Counts
from tests.soak import (
    cluster_kills,
    full_disks,
    job_kills,
    job_mutations,
    kills,
    links,
    mutations,
    output_kills,
    spline_sweep,
    threads,
)
from tests.soak.victims import make_victims

ATTACKS = {
    "kills": "runs killed at every filesystem operation and at random moments",
    "jobs": "jobs killed at every filesystem operation and at random moments",
    "outputs": "commands with several outputs, killed in the same way",
    "folders": "job folders with other content",
    "mutations": "run folders with other content",
    "links": "links where a run writes",
    "threads": "loads and fits in four threads",
    "disks": "disks that are full",
    "tables": "tables that change while they are read",
    "splines": "spline evaluations",
    "cluster": "workers of a Ray cluster killed in the middle of jobs",
}


def run(name: str, folder: Path, options: argparse.Namespace) -> Counts:
    """Run one attack in a new folder."""
    folder.mkdir()
    match name:
        case "kills":
            return kills.attack(folder, options.kills, options.seed)
        case "jobs":
            return job_kills.attack(folder, options.kills, options.seed)
        case "outputs":
            return output_kills.attack(folder, options.kills, options.seed)
        case "folders":
            return job_mutations.attack(folder, options.folders, options.seed, options.first)
        case "cluster":
            return cluster_kills.attack(folder, options.workers, options.seed)
        case "mutations":
            return mutations.attack(make_victims(folder), folder, options.mutations, options.seed, options.first)
        case "links":
            return links.attack(make_victims(folder), folder)
        case "threads":
            return threads.attack(folder)
        case "disks":
            return full_disks.attack(make_victims(folder), folder)
        case "tables":
            counts = Counts()
            for format in changing_tables.FORMATS:
                counts.join(changing_tables.attack(folder / format, format))
            return counts
        case _:
            return spline_sweep.attack(options.evaluations, options.seed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ATTACKS)}; all by default")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--mutations", type=int, default=5000)
    parser.add_argument("--folders", type=int, default=500, help="hostile job folders")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first mutation or job folder")
    parser.add_argument("--evaluations", type=int, default=100_000_000)
    parser.add_argument("--workers", type=int, default=10, help="killed in a cluster")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn")
    options = parser.parse_args()
    if unknown := set(options.names) - set(ATTACKS):
        parser.error(f"there is no attack {', '.join(sorted(unknown))}; there are {', '.join(ATTACKS)}")
    torch.set_num_threads(1)  # threads do not survive a fork
    pa.set_cpu_count(1)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or ATTACKS:
            started = time.monotonic()
            counts = run(name, Path(folder) / name, options)
            failed = failed or bool(counts.failures)
            seconds = time.monotonic() - started
            sys.stdout.write(f"{name:<10} {ATTACKS[name]}: {counts.summary()}, {seconds:,.0f} s\n")
            sys.stdout.flush()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
