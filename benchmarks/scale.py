"""Rows a second, bytes a row and memory of scoring, sampling and training on a mixed table.

    python -m benchmarks.scale --folder /tmp/scale                            two cores, with Ray where it is installed
    python -m benchmarks.scale --folder /tmp/scale --device cuda              the same on a GPU, without Ray
    python -m benchmarks.scale --folder /tmp/scale --only score --rows 100000

The table has two columns of words, a count, a price in steps of 0.01, a real number, and a real number with gaps. A
model of columns is fitted to the first 20,000 rows. Each measurement is a command in a new process, timed from the
start of Python to its end. Memory is the largest resident set of the process (VmHWM), or of one worker with Ray. A new
line replaces the line with the same device, task, engine and rows in results/scale.csv.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

RESULTS = Path(__file__).parent.parent / "results" / "scale.csv"
FILE_ROWS = 1 << 20
GROUP_ROWS = 1 << 17
FITTED_ROWS = 20_000
KEYS = ("device", "task", "how", "rows")
FIELDS: tuple[str, ...] = (*KEYS, "workers", "seconds", "processor_seconds", "rows_a_second")
FIELDS += ("input_bytes", "output_bytes", "peak_mib", "load")  # bytes a row, MiB, load average at the end
TASKS = ("score", "sample", "train", "memory")


def piece(number: int, rows: int) -> pa.Table:
    """Draw one file's rows, from a seed that depends on the file's number."""
    rng = np.random.default_rng([7, number])
    town = rng.choice(["Ghent", "Lille", "Delft", "Basel", "Turin"], rows, p=[0.4, 0.25, 0.2, 0.1, 0.05])
    kind = np.where(rng.random(rows) < 0.3, "return", "sale")
    count = rng.poisson(np.where(kind == "sale", 3.0, 1.2))
    price = np.round(rng.gamma(2.0, 8.0, rows) * (1 + (town == "Basel")), 2)
    delay = rng.normal(2.0, 0.5, rows) + 0.2 * count
    score = rng.normal(size=rows) - 0.02 * price
    columns = {"town": town, "kind": kind, "count": count, "price": price, "delay": delay}
    return pa.table({**columns, "score": pa.array(score, mask=rng.random(rows) < 0.1)})


def make_table(folder: Path, rows: int) -> Path:
    """Return a folder of Parquet files with ``rows`` rows. Write it if it does not exist."""
    lake = folder / f"lake-{rows}"
    if not lake.exists():
        making = folder / "making"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        for number, first in enumerate(range(0, rows, FILE_ROWS)):
            part = piece(number, min(FILE_ROWS, rows - first))
            pq.write_table(part, making / f"{number:05d}.parquet", row_group_size=GROUP_ROWS)
        making.rename(lake)
    return lake


def bytes_of(path: Path) -> int:
    files = [path] if path.is_file() else list(path.glob("*.parquet"))
    return sum(file.stat().st_size for file in files)


def descendants(pid: int) -> list[int]:
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            below = [int(child) for child in children.read_text().split()]
        except OSError:
            continue
        found += below
        for child in below:
            found += descendants(child)
    return found


def peak_mib(pid: int) -> float:
    """Return the largest resident set of a process so far, or 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) / 1024
    except (OSError, StopIteration):
        return 0.0


def processor_seconds(pid: int) -> float:
    """Return the processor seconds of a process so far, or 0 if the process has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_worker(pid: int) -> bool:
    try:
        return b"BlockWorker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class Measured(NamedTuple):
    """Wall-clock seconds, processor seconds and peak memory in MiB of a command. With Ray, memory is one worker's."""

    seconds: float
    processor_seconds: float
    peak: float


def timed(arguments: list[str], threads: int) -> Measured:
    """Run a cubicflow command to its end, and measure it. Exit if the command fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "RAY_USAGE_STATS_ENABLED": "0"}
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "cubicflow", *arguments], env=environment)
    own = of_workers = 0.0
    worked: dict[int, float] = {}
    while process.poll() is None:
        own = max(own, peak_mib(process.pid))
        below = descendants(process.pid)
        of_workers = max([of_workers, *(peak_mib(pid) for pid in below if is_worker(pid))])
        worked |= {pid: max(worked.get(pid, 0.0), processor_seconds(pid)) for pid in (process.pid, *below)}
        time.sleep(0.2)
    if process.returncode:
        sys.exit(f"{' '.join(arguments)} ended with status {process.returncode}")
    return Measured(time.perf_counter() - began, sum(worked.values()), of_workers or own)


class Records:
    """The lines of the results file, which is rewritten after each measurement."""

    def __init__(self, device: str) -> None:
        self.device = device
        known = RESULTS.read_text().splitlines() if RESULTS.exists() else []
        self.lines = list(csv.DictReader(known))

    def add(self, task: str, how: str, rows: int, workers: int, measured: Measured, sizes: list[float]) -> None:
        seconds, worked, peak = measured
        values = [self.device, task, how, rows, workers, f"{seconds:.1f}", f"{worked:.1f}", f"{rows / seconds:.0f}"]
        values += [f"{size:.1f}" for size in sizes] + [f"{peak:.0f}", f"{os.getloadavg()[0]:.1f}"]
        line = dict(zip(FIELDS, map(str, values), strict=True))
        print(", ".join(f"{name} {value}" for name, value in line.items()), flush=True)
        same = [all(known[key] == line[key] for key in KEYS) for known in self.lines]
        self.lines = [known for known, is_same in zip(self.lines, same, strict=True) if not is_same] + [line]
        with RESULTS.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(sorted(self.lines, key=lambda known: [known["device"], known["task"], int(known["rows"])]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="folder for tables and outputs")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=TASKS, action="append")
    arguments = parser.parse_args()
    folder, rows, workers, device = arguments.folder, arguments.rows, arguments.workers, arguments.device
    tasks = arguments.only or TASKS
    records = Records(device)
    on_device = ["--device", device]
    run = folder / "run"
    train = folder / "train.parquet"
    if not train.exists():
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(piece(0, FITTED_ROWS), train)
    settings = [
        "--steps",
        "50",
        "--hidden-features",
        "32",
        "--num-bins",
        "8",
        "--batch-size",
        "1024",
        "--validate-every",
        "50",
    ]
    if not (run / "model.safetensors").exists():
        timed(["fit", str(train), "-o", str(run), "--overwrite", *settings, "--device", "cpu"], workers)
    ways = {"one process": [], "engine local": ["--engine", "local"], "engine ray": ["--engine", "ray"]}
    if device != "cpu" or importlib.util.find_spec("ray") is None:
        del ways["engine ray"]
    for how, options in ways.items():
        engine = [*options, "--workers", str(workers)] if options and device == "cpu" else options
        if "score" in tasks:
            lake, out = make_table(folder, rows), folder / ("out" if options else "out.parquet")
            measured = timed(["score", str(run), str(lake), "-o", str(out), *engine, *on_device], workers)
            sizes = [bytes_of(lake) / rows, bytes_of(out) / rows]
            records.add("score", how, rows, workers, measured, sizes)
            shutil.rmtree(out) if options else out.unlink()
        if "sample" in tasks:
            drawn, out = rows // 10, folder / ("drawn" if options else "drawn.parquet")
            command = ["sample", str(run), "-n", str(drawn), "-o", str(out), "--seed", "1"]
            measured = timed([*command, *engine, *on_device], workers)
            records.add("sample", how, drawn, workers, measured, [0.0, bytes_of(out) / drawn])
            shutil.rmtree(out) if options else out.unlink()
    if "train" in tasks:
        trained = folder / "trained"
        measured = timed(["fit", str(train), "-o", str(trained), "--overwrite", *settings, *on_device], workers)
        result = json.loads((trained / "config.json").read_text())["result"]
        seen = int(result["steps"]) * 1024
        measured = measured._replace(seconds=result["seconds"])  # training steps only
        records.add("train", "one process", seen, workers, measured, [bytes_of(train) / FITTED_ROWS, 0.0])
    if "memory" in tasks:
        for fewer in (rows // 100, rows // 10, rows):
            lake, out = make_table(folder, fewer), folder / "out"
            command = ["score", str(run), str(lake), "-o", str(out), "--engine", "local", "--workers", str(workers)]
            measured = timed([*command, *on_device], workers)
            sizes = [bytes_of(lake) / fewer, bytes_of(out) / fewer]
            records.add("memory", "engine local", fewer, workers, measured, sizes)
            shutil.rmtree(out)


if __name__ == "__main__":
    main()
