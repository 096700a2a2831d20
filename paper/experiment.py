"""The request that every experiment gets, and the record that it writes."""

from __future__ import annotations

import csv
import importlib
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from benchmarks.machine import machine

from cubicflow.data.symmetries import Symmetries
from cubicflow.files import replacing, write_atomically
from cubicflow.training import FitResult, TrainingConfig, TrainingInterrupted, fit
from cubicflow.training.distributed import choose_device
from cubicflow.training.run_folder import RunFolder
from paper.deadline import Deadline
from paper.recipe_files import Settings

# Each experiment is a function run(request) in the module of the same name, with _ for -.
EXPERIMENTS = ("figure-1", "figure-2", "table-1", "figure-3", "appendix")


class UnfinishedError(Exception):
    """The call's time limit ended before the training did. Everything is saved; the message says how to continue."""


@dataclass(frozen=True)
class Request:
    """One call of ``python -m paper``.

    Attributes:
        name: the name of the experiment.
        folder: the output folder.
        recipe: the settings, in their quick form if ``quick``.
        command: the command line, for the record and for messages that say how to continue.
        quick: whether this is the short form, which only shows that the experiment works.
        data: the data folder, or None for the default one.
        device: the device for training.
        seed: the seed, or None for the recipe's seed.
        deadline: the time limit of this call.
        overwrite: start again, and replace the content of the folder.
        images: pictures to use as densities, for figure-2.
        datasets, models: the chosen datasets and models of table-1; empty for all.
        report: a function that shows the user one line.
        began: the start of this call, in seconds of the monotonic clock.
    """

    name: str
    folder: Path
    recipe: Settings
    command: str
    quick: bool = False
    data: Path | None = None
    device: str = "auto"
    seed: int | None = None
    deadline: Deadline = field(default_factory=lambda: Deadline(None))
    overwrite: bool = False
    images: tuple[Path, ...] = ()
    datasets: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    report: Callable[[str], None] = print
    began: float = field(default_factory=time.monotonic)

    def train(
        self,
        build: Callable[[], Any],
        train: Any,
        validation: Any,
        settings: Mapping[str, Any],
        run: Path,
        *,
        seed: int,
        symmetries: Symmetries | None = None,
    ) -> FitResult:
        """Fit the flow that ``build`` returns, in the run folder ``run``. A run that an earlier call began is resumed.

        The result does not depend on the number of calls.
        """
        if self.deadline.over():
            raise self.unfinished()
        torch.manual_seed(seed)
        try:
            flow, config = build(), TrainingConfig.make(device=self.device, seed=seed, **settings)
        except TypeError as error:  # the recipe has a setting that the flow or the training does not have
            raise ValueError(f"the recipe of {self.name}: {error}") from error
        try:
            return fit(
                flow, train, validation, config, run=run, resume=True, symmetries=symmetries, stop=self.deadline.over
            )
        except TrainingInterrupted:
            if self.deadline.over():
                raise self.unfinished() from None
            raise TrainingInterrupted(f"stopped and saved. To continue: {self.next_command}") from None

    def run(self) -> None:
        """Run the experiment. Only the module of this experiment is imported, because it may need matplotlib."""
        self.check()
        importlib.import_module(f"paper.{self.name.replace('-', '_')}").run(self)

    def check(self) -> None:
        """Raise ValueError, before training, for bad options and for a quick run that would replace full results."""
        if self.seed is not None and not 0 <= self.seed < 2**32:
            raise ValueError(f"--seed must be a whole number from 0 to 2^32 - 1, got {self.seed}")
        choose_device(self.device)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder} is a file; give a folder with -o")
        path = self.folder / f"{self.name}.json"
        if self.quick and not self.overwrite and path.exists() and not read_json(path).get("quick", False):
            raise ValueError(
                f"{self.folder} holds results of a full run, and --quick would replace them; choose another folder "
                "with -o, or use --overwrite"
            )

    def begin(self, folder: Path) -> None:
        """Remove the runs in a folder, ``run`` and ``runs/*``, if ``overwrite`` is set and the deadline has not passed.

        An interrupted call can then be continued without ``--overwrite``.
        """
        if not self.overwrite or self.deadline.over():
            return
        for run in (folder / "run", *sorted((folder / "runs").glob("*"))):
            RunFolder(run).forget()

    @property
    def first_seed(self) -> int:
        """The seed given by the user, or the recipe's seed."""
        return int(self.recipe["seed"]) if self.seed is None else self.seed

    @property
    def next_command(self) -> str:
        """The command that continues this call: the same command without ``--overwrite``."""
        return self.command.replace(" --overwrite", "")

    def unfinished(self) -> UnfinishedError:
        """Return the error for a call whose time limit has passed."""
        return UnfinishedError(
            f"not finished: the time is up, and everything is saved. To continue: {self.next_command}"
        )

    def record(self, results: Mapping[str, Any], *, notes: Sequence[str] = ()) -> None:
        """Write NAME.json: the results, with the command, settings, seed and machine needed to repeat them."""
        content = {
            "experiment": self.name,
            "command": self.command,
            "quick": self.quick,
            "seed": self.recipe.get("seed") if self.seed is None else self.seed,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self.began, 1),
            "machine": machine(self.device),
            "notes": list(notes),
            "results": dict(results),
            "settings": self.recipe,
        }
        self.write(f"{self.name}.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def write(self, name: str, text: str) -> None:
        """Write a text file of this experiment atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / name, text.encode())

    def write_csv(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write a CSV file. The keys of the first row are the columns."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        self.write(name, text.getvalue())

    def draw(self, name: str, figure: Any, dots_per_inch: int = 150) -> None:
        """Write a figure as a PNG file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.folder / name) as file:
            figure.savefig(file, format="png", dpi=dots_per_inch)


def read_json(path: Path) -> dict[str, Any]:
    """Read a record; return an empty dict if the file is not a JSON object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
