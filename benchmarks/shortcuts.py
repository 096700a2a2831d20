"""What each shortcut of ``cubicflow.accel`` brings, alone.

    python -m benchmarks.shortcuts -o results/accel [--device cuda] [--only WORD ...]

Every shortcut in turn is switched off while all others stay on. The time without it, divided by the time with all, is
what it brings: 1.05 means that the work takes 5 % longer without it. Some shortcuts are chosen when a module is
imported, so each variant is a process of its own; all processes start at once and wait for their turn. Two processes,
one with all shortcuts and one without one of them, take turns every tenth of a second, so that other work on the
machine slows both alike. A pair of turns gives a ratio; the record has the median of the ratios and their quartiles.

The command adds one line to DEVICE.csv for each shortcut and workload. If it is interrupted, run it again: it measures
the shortcuts that are missing. On one GPU it takes about five minutes.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from benchmarks.machine import machine, name_of

ALL_ON = "all on"
PAIRS = 15  # pairs of turns of a workload
TURN = 0.1  # seconds of a turn


# What switches a shortcut off: a module, an attribute in it, and its replacement. PLAIN stands for the method of the
# class that the owner extends.
PLAIN: Any = object()
ACCEL = "cubicflow.accel."
SHORTCUTS: dict[str, tuple[str, str, Any]] = {
    "captured step": ("captured_step", "FastStepHook.prepared_step", PLAIN),
    "one flat vector of weights": ("captured_step", "can_be_flat", lambda _: False),
    "fused Adam": ("captured_step", "CAN_FUSE", False),
    "clip, check, Adam and average in three kernels": ("captured_step", "FastStepHook.finish", PLAIN),
    "splines on slices of rows": ("fused_coupling", "FastCouplingPass.forward", PLAIN),
    "second stream": ("side_stream", "SideStream.weight_gradients", lambda _: nullcontext()),
    "relu inside the product": ("side_stream", "_addmm_activation", None),
    "fused norms": ("side_stream", "FastProducts.add_norm", PLAIN),
    "attention of one query": ("side_stream", "FastProducts.attention", PLAIN),
    "replayed pieces": ("capture", "FastChunks.repeated", PLAIN),
    "cached launches of Triton": ("eager_fast_path", "FastCalls.launch", PLAIN),
    "no autograd where nothing is derived": ("eager_fast_path", "FastCalls.needs_no_grad", PLAIN),
    "no dispatcher where nobody looks": ("eager_fast_path", "FastCalls.plain_eager", PLAIN),
    "apply without binding": ("eager_fast_path", "FastCalls.fast_apply", PLAIN),
    "one attribute for forward mode": ("eager_fast_path", "FastCalls.in_forward_mode", PLAIN),
}
# These do nothing on a CPU.
GPU_ONLY = (
    "captured step",
    "clip, check, Adam and average in three kernels",
    "splines on slices of rows",
    "second stream",
    "relu inside the product",
    "fused norms",
    "attention of one query",
    "replayed pieces",
    "cached launches of Triton",
)


def switch_off(shortcut: str) -> None:
    """Replace a shortcut by what it stands for."""
    module, path, replacement = SHORTCUTS[shortcut]
    *outer, name = path.split(".")
    owner: Any = importlib.import_module(ACCEL + module)
    for part in outer:
        owner = getattr(owner, part)
    setattr(owner, name, getattr(owner.__mro__[1], name) if replacement is PLAIN else replacement)


def workloads(device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of a workload and a function that runs it once."""
    import torch

    import cubicflow as cf
    from cubicflow.data.rows import Batch
    from cubicflow.training import TrainingConfig, negative_log_likelihood
    from cubicflow.training.distributed import Processes
    from cubicflow.training.step import Step
    from cubicflow.training.step_hook import step_hook

    torch.manual_seed(0)

    def step_of(flow: cf.Flow, rows: int, precision: str) -> Callable[[], None]:
        config = TrainingConfig(steps=1000, batch_size=rows, precision=precision).resolve(10**6)
        processes = Processes(torch.device(device, 0) if device == "cuda" else torch.device(device))
        step = Step(flow.to(device).train(), negative_log_likelihood, config, processes, 1.0)
        take = step_hook.prepared_step(step, print)
        batch = Batch(torch.randn(rows, flow.base.features, device=device))
        step.set_rates(1e-5, 0.1)
        return lambda: take(batch)

    yield "training step, D = 6, 512 rows", step_of(cf.flows.tabular(6), 512, "tf32" if device == "cuda" else "float32")
    flow = cf.flows.tabular(6).to(device).eval()
    for rows in (1, 512):
        x = torch.randn(rows, 6, device=device)
        yield f"log_prob, D = 6, {rows} row{'s' if rows > 1 else ''}", partial(flow.log_prob, x)
    if device != "cuda":
        return
    x = torch.randn(2**17, 6, device=device)
    yield "log_prob, D = 6, 2^17 rows in pieces of 4,096", lambda: flow.log_prob(x, batch_size=4096)
    attention = cf.flows.tabular(63, layer="autoregressive", network="transformer", hidden_features=256, dropout=0.1)
    yield "training step, attention, D = 63, 512 rows", step_of(attention, 512, "bf16")
    attention.eval()
    yield "512 samples, attention, D = 63", lambda: attention.sample(512)


def serve(shortcut: str, device: str) -> None:
    """Run workloads on request, with one shortcut off. A line of the input is a workload's number and how often to run
    it; a line of the output is the milliseconds of one run."""
    import torch

    import cubicflow.splines.calls
    import cubicflow.training.step_hook  # noqa: F401 - both imports fill the hooks before a shortcut is switched off

    torch.set_num_threads(1)
    if shortcut != ALL_ON:
        switch_off(shortcut)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    # On a CPU, the time that other programs run does not count: one thread, and the processor time of the process.
    clock = time.perf_counter if device == "cuda" else time.process_time
    known = list(workloads(device))
    print(json.dumps([name for name, _ in known]), flush=True)
    for line in sys.stdin:
        number, repeats = map(int, line.split())
        name, run = known[number]
        with torch.no_grad() if "step" not in name else nullcontext():
            wait()
            begin = clock()
            for _ in range(repeats):
                run()
            wait()
            print(1e3 * (clock() - begin) / repeats, flush=True)


class Worker:
    """A process that serves the workloads without one shortcut."""

    def __init__(self, shortcut: str, device: str) -> None:
        command = [sys.executable, "-m", "benchmarks.shortcuts", "--serve", shortcut, "--device", device]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @cached_property
    def names(self) -> list[str]:
        """The names of the workloads. Waits until the process is ready."""
        found: list[str] = json.loads(self._answer())
        return found

    def time(self, work: int, repeats: int) -> float:
        """Return the milliseconds of one run."""
        assert self.names  # the process is ready
        assert self.process.stdin is not None
        self.process.stdin.write(f"{work} {repeats}\n")
        self.process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        self.process.communicate()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        if not (line := self.process.stdout.readline()):
            raise SystemExit("a process ended early; its message is above")
        return line


def compare(worker: Worker, plain: Worker, work: int) -> dict[str, Any]:
    """Return the times of a workload in both processes, and their ratio."""
    for each in (worker, plain):
        each.time(work, 5)  # compile, capture, choose algorithms
    repeats = max(1, round(1e3 * TURN / worker.time(work, 5)))
    turns = []
    for pair in range(PAIRS):
        order = (worker, plain) if pair % 2 else (plain, worker)
        found = {id(each): each.time(work, repeats) for each in order}
        turns.append((found[id(worker)], found[id(plain)]))
    low, middle, high = statistics.quantiles([without / with_all for with_all, without in turns])
    with_all, without = (statistics.median(column) for column in zip(*turns, strict=True))
    return {
        "all on (ms)": f"{with_all:.4g}",
        "without (ms)": f"{without:.4g}",
        "ratio": f"{middle:.3f}",
        "lower quartile": f"{low:.3f}",
        "upper quartile": f"{high:.3f}",
    }


def main() -> None:
    """Parse the arguments, and measure every shortcut that the record lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", nargs="*", default=[], help="words of the shortcuts to measure")
    parser.add_argument("--serve", help=argparse.SUPPRESS)  # run workloads without this shortcut, as a process asks
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.device)
        return
    if given.output is None:
        parser.error("give the folder of the results with -o")
    given.output.mkdir(parents=True, exist_ok=True)
    path = given.output / f"{given.device}.csv"
    done = {line["shortcut"] for line in csv.DictReader(path.open())} if path.exists() else set()
    names = [name for name in SHORTCUTS if not given.only or any(word in name for word in given.only)]
    if given.device == "cpu":
        names = [name for name in names if name not in GPU_ONLY]
    worker = Worker(ALL_ON, given.device)
    for name, plain in [(name, Worker(name, given.device)) for name in names if name not in done]:
        lines = [
            {
                "shortcut": name,
                "work": work,
                **compare(worker, plain, number),
                "machine": name_of(machine(given.device)),
            }
            for number, work in enumerate(worker.names)
        ]
        plain.close()
        for line in lines:
            print(f"{line['work']}: without {name} {line['ratio']}", flush=True)
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
            if not path.stat().st_size:
                writer.writeheader()
            writer.writerows(lines)
    worker.close()


if __name__ == "__main__":
    main()
