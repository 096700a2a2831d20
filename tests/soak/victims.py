"""Valid runs to attack: a flow and a model of columns, each once finished and once interrupted with a checkpoint."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tests.helpers.forks import command, forked, warm_up

MODELS = {"flow": ("--num-layers", 1, "--num-blocks", 1), "columns": ("--num-blocks", 1)}
STEPS = 6


class Victim(NamedTuple):
    """A run folder, and the arguments of the fit that made it."""

    name: str
    run: Path
    table: Path
    fit: tuple[object, ...]
    finished: bool


def make_table(path: Path, rows: int = 60) -> Path:
    rng = np.random.default_rng(0)
    word = rng.choice(["cat", "dog", "a b"], rows)
    size = np.round(rng.gamma(2.0, 2.0, rows), 1).astype(str)
    size[::9] = "" if path.name == "gaps.csv" else "1.5"
    weight = rng.normal(size=rows)
    lines = [f"{a},{b},{c:.6f},{i % 7}\n" for i, (a, b, c) in enumerate(zip(word, size, weight, strict=True))]
    path.write_text("word,size,weight,day\n" + "".join(lines))
    return path


def make_victims(folder: Path) -> list[Victim]:
    """Make the runs with the command line."""
    found = []
    for model, settings in MODELS.items():
        table = make_table(folder / ("t.csv" if model == "flow" else "gaps.csv"))
        shared = (table, "--model", model, "--steps", STEPS, "--hidden-features", 4, "--num-bins", 4, "--device", "cpu")
        fit = (*shared, *settings, "--batch-size", 16, "--checkpoint-seconds", 0)
        finished, interrupted = folder / f"{model}-finished", folder / f"{model}-interrupted"
        warm_up([("fit", *fit, "-o", finished)])
        assert (finished / "model.safetensors").exists()
        made = forked(lambda fit=fit, run=interrupted: _interrupted(run, fit), 120)
        assert made.status == -signal.SIGKILL, made.errors
        assert (interrupted / "checkpoint.safetensors").exists()
        found += [Victim(f"{model}, finished", finished, table, fit, True)]
        found += [Victim(f"{model}, interrupted", interrupted, table, fit, False)]
    return found


def _interrupted(run: Path, fit: tuple[object, ...]) -> None:
    """Start a fit that is killed after its second checkpoint."""
    from cubicflow.training import run_folder

    original, saved = run_folder.RunFolder.save, []

    def save(self: run_folder.RunFolder, *arguments: object) -> None:
        original(self, *arguments)
        saved.append(1)
        if len(saved) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    run_folder.RunFolder.save = save
    command("fit", *fit, "-o", run)
