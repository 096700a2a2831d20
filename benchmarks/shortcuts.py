"""What each shortcut of ``cubicflow.accel`` brings, alone.

    python -m benchmarks.shortcuts -o results/accel [--device cuda] [--rounds 5] [--only WORD ...]

Every shortcut in turn is switched off while all others stay on. The time without it, divided by the time with all, is
what it brings: 1.05 means that the work takes 5 % longer without it. Each measurement is a process of its own, because
some shortcuts are chosen when a module is imported; the processes of all variants take turns, and a round is one
process of each. The command writes DEVICE.csv, one line for each shortcut, workload and round.
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
from functools import partial
from pathlib import Path
from typing import Any

ALL_ON = "all on"
SECONDS = 1.5  # for each workload of a process


# What switches a shortcut off: a module, an attribute in it, and its replacement. PLAIN stands for the method of the
# class that the owner extends.
PLAIN: Any = object()
ACCEL = "cubicflow.accel."
SHORTCUTS: dict[str, tuple[str, str, Any]] = {
    "captured step": ("captured_step", "FastParts.repeated", PLAIN),
    "one flat vector of weights": ("captured_step", "can_be_flat", lambda _: False),
    "fused Adam": ("captured_step", "CAN_FUSE", False),
    "second stream": ("forked_gradients", "Fork.weight_gradients", lambda _: nullcontext()),
    "bias gradients as products": ("forked_gradients", "sum_of_rows", lambda grad, _: grad.sum(0)),
    "relu inside the product": ("forked_gradients", "_addmm_activation", None),
    "fused norms": ("forked_gradients", "ForkedProducts.add_norm", PLAIN),
    "attention of one query": ("forked_gradients", "ForkedProducts.attention", PLAIN),
    "replayed pieces": ("replayed_pieces", "ReplayedPieces.repeated", PLAIN),
    "cached launches of Triton": ("light_calls", "LightCalls.launch", PLAIN),
    "no autograd where nothing is derived": ("light_calls", "LightCalls.only_values", PLAIN),
    "no dispatcher where nobody looks": ("light_calls", "LightCalls.unseen", PLAIN),
    "apply without binding": ("light_calls", "LightCalls.applier", PLAIN),
    "one attribute for forward mode": ("light_calls", "LightCalls.in_forward_mode", PLAIN),
}


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
    from cubicflow.training.distributed import World
    from cubicflow.training.parts import parts
    from cubicflow.training.step import Step

    torch.manual_seed(0)

    def step_of(flow: cf.Flow, rows: int, precision: str) -> Callable[[], None]:
        config = TrainingConfig(steps=1000, batch_size=rows, precision=precision).resolve(10**6)
        world = World(torch.device(device, 0) if device == "cuda" else torch.device(device))
        step = Step(flow.to(device).train(), negative_log_likelihood, config, world, 1.0)
        take = parts.repeated(step, print)
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


def time_workloads(shortcut: str, device: str) -> dict[str, float]:
    """Return the median milliseconds of every workload, with one shortcut off."""
    import torch

    import cubicflow.splines.calls
    import cubicflow.training.parts  # noqa: F401 - both imports fill the hooks before a shortcut is switched off

    torch.set_num_threads(2)
    if shortcut != ALL_ON:
        switch_off(shortcut)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    found = {}
    for name, run in workloads(device):
        with torch.no_grad() if "step" not in name else nullcontext():
            for _ in range(5):
                run()
            wait()
            times: list[float] = []
            end = time.perf_counter() + SECONDS
            while time.perf_counter() < end or len(times) < 5:
                begin = time.perf_counter()
                run()
                wait()
                times.append(1e3 * (time.perf_counter() - begin))
        found[name] = statistics.median(times)
    return found


def main() -> None:
    """Parse the arguments, and measure every shortcut."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="words of the shortcuts to measure")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # measure one variant in this process
    given = parser.parse_args()
    if given.one:
        print(json.dumps(time_workloads(given.one, given.device)))
        return
    if given.output is None:
        parser.error("give the folder of the results with -o")
    chosen = [ALL_ON, *(name for name in SHORTCUTS if not given.only or any(word in name for word in given.only))]
    lines = []
    for number in range(given.rounds):
        for name in chosen:
            command = [sys.executable, "-m", "benchmarks.shortcuts", "--one", name, "--device", given.device]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            for work, milliseconds in json.loads(output.splitlines()[-1]).items():
                lines.append({"shortcut": name, "work": work, "round": number, "milliseconds": round(milliseconds, 4)})
        print(f"round {number + 1} of {given.rounds}", flush=True)
        given.output.mkdir(parents=True, exist_ok=True)
        with (given.output / f"{given.device}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    for line in summary(lines):
        print(line)


def summary(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield one line for each shortcut and workload: the ratio to all shortcuts on, paired by rounds."""
    times = {(line["shortcut"], line["work"], line["round"]): line["milliseconds"] for line in lines}
    rounds = sorted({key[2] for key in times})
    for work in dict.fromkeys(line["work"] for line in lines):
        for shortcut in dict.fromkeys(line["shortcut"] for line in lines if line["shortcut"] != ALL_ON):
            ratios = sorted(times[shortcut, work, r] / times[ALL_ON, work, r] for r in rounds)
            middle = statistics.median(ratios)
            yield f"{work}: without {shortcut} {middle:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"


if __name__ == "__main__":
    main()
