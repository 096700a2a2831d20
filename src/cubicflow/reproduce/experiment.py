"""What every experiment is asked, and the record it leaves behind."""

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

from cubicflow.atomic_files import replacing, write_atomically
from cubicflow.data.symmetries import Symmetries
from cubicflow.reproduce.deadline import Deadline
from cubicflow.reproduce.hardware import machine_in_use
from cubicflow.reproduce.recipe_files import Settings
from cubicflow.training import FitResult, TrainingConfig, TrainingInterrupted, fit
from cubicflow.training.distributed import choose_device
from cubicflow.training.run_folder import forget_run

# Each is a function run(request) in the module of its name.
EXPERIMENTS = ("figure-1", "figure-2", "table-1", "figure-3", "appendix")


class UnfinishedError(Exception):
    """The time of this call is over before the schedule is. All is saved, and the message says how to go on."""


@dataclass(frozen=True)
class Request:
    """One call of ``cubicflow reproduce``.

    Attributes:
        name: of the experiment.
        folder: where everything goes.
        recipe: the settings, in their quick form if asked.
        command: as it was typed, for the record and for whoever goes on.
        quick: whether this is the short form, which is no result.
        data: the data folder, or None for the usual one.
        device: of the training.
        seed: None for the recipe's.
        deadline: the end of this call.
        overwrite: begin again, whatever the folder holds.
        images: pictures to use as densities.
        datasets, models: of the table; empty for all.
        say: tells the user a sentence.
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
    say: Callable[[str], None] = print
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
        """Fit the flow that ``build`` makes, in the run folder ``run``: from the beginning, or from where an earlier
        call left it. Whether it took one call or ten, the result is the same."""
        if self.deadline.over():
            raise self.unfinished()
        torch.manual_seed(seed)
        try:
            flow, config = build(), TrainingConfig.make(device=self.device, seed=seed, **settings)
        except TypeError as error:  # a name that the flow or the training does not know
            raise ValueError(f"the recipe of {self.name}: {error}") from error
        try:
            return fit(
                flow, train, validation, config, run=run, resume=True, symmetries=symmetries, stop=self.deadline.over
            )
        except TrainingInterrupted:
            if self.deadline.over():
                raise self.unfinished() from None
            raise TrainingInterrupted(f"stopped and saved. To go on: {self.next_command}") from None

    def run(self) -> None:
        """Run the experiment. Its module is imported now: only one is needed, and it may need matplotlib."""
        self.check()
        importlib.import_module(f"cubicflow.reproduce.{self.name.replace('-', '_')}").run(self)

    def check(self) -> None:
        """Refuse, before anything is trained, what would end badly or replace results by a trial."""
        if self.seed is not None and not 0 <= self.seed < 2**32:
            raise ValueError(f"--seed must be a whole number from 0 to 2^32 - 1, got {self.seed}")
        choose_device(self.device)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder} is a file; give a folder with -o")
        path = self.folder / f"{self.name}.json"
        if self.quick and not self.overwrite and path.exists() and not read_json(path).get("quick", False):
            raise ValueError(
                f"{self.folder} holds results of the full form, and --quick would replace them; choose another folder "
                "with -o, or use --overwrite"
            )

    def begin(self, folder: Path) -> None:
        """Where it is asked to begin again, and there is time to, drop the runs in a folder, ``run`` and ``runs/*``: a
        call that is cut short then goes on like any other."""
        if not self.overwrite or self.deadline.over():
            return
        for run in (folder / "run", *sorted((folder / "runs").glob("*"))):
            forget_run(run)

    @property
    def first_seed(self) -> int:
        """The seed that was asked for, or the recipe's."""
        return int(self.recipe["seed"]) if self.seed is None else self.seed

    @property
    def next_command(self) -> str:
        """What to type to go on: the same, but never to begin again."""
        return self.command.replace(" --overwrite", "")

    def unfinished(self) -> UnfinishedError:
        """Return the error for a call whose time is over."""
        return UnfinishedError(f"not finished: the time is over, and all is saved. To go on: {self.next_command}")

    def record(self, results: Mapping[str, Any], *, notes: Sequence[str] = ()) -> None:
        """Write NAME.json: the results with everything needed to get them again."""
        content = {
            "experiment": self.name,
            "command": self.command,
            "quick": self.quick,
            "seed": self.recipe.get("seed") if self.seed is None else self.seed,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self.began, 1),
            "machine": machine_in_use(self.device),
            "notes": list(notes),
            "results": dict(results),
            "settings": self.recipe,
        }
        self.write(f"{self.name}.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def write(self, name: str, text: str) -> None:
        """A text file of this experiment, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / name, text.encode())

    def write_csv(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """A CSV whose columns are the keys of the first row."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        self.write(name, text.getvalue())

    def draw(self, name: str, figure: Any, dots_per_inch: int = 150) -> None:
        """A picture of this experiment."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.folder / name) as file:
            figure.savefig(file, format="png", dpi=dots_per_inch)


def read_json(path: Path) -> dict[str, Any]:
    """Return a record; an empty one if the file is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown.

    >>> print(markdown_table(["a", "b"], [[1, "2 | 3"]]))
    | a | b |
    |---|---|
    | 1 | 2 \\| 3 |
    """
    first, *others = ("| " + " | ".join(str(c).replace("|", "\\|") for c in line) + " |" for line in (header, *rows))
    return "\n".join([first, "|" + "---|" * len(header), *others])
