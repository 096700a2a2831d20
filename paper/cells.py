"""The cells of table 1. A cell is one dataset, one model and one seed.

A cell is trained and scored once. Its record and the scores of all test rows are written to its folder. The table is
built from the records that exist.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.machine import machine

from cubicflow.arguments import unknown_name
from cubicflow.data.symmetries import KINDS, Symmetries
from cubicflow.files import replacing, write_atomically
from cubicflow.training import FitResult
from paper.data import BENCHMARKS, PUBLISHED, Benchmark, load_benchmark
from paper.data.bsds300 import SIDE
from paper.data.folders import MissingDataError
from paper.recipe_files import Settings, merged, typed
from paper.scores import Scores, estimate

RECORD_FILE, SCORES_FILE = "record.json", "test_scores.npz"
STEPS_PER_NAT = 64  # saved scores are multiples of 1 / STEPS_PER_NAT
ROWS_AT_ONCE = 8_192


@dataclass(frozen=True)
class TableSettings:
    """The settings in the recipe of table 1."""

    most_rows: int
    flow: Settings
    training: Settings
    datasets: Mapping[str, Settings]
    models: Settings
    peers: Settings
    comparisons: Settings
    table: Sequence[Settings]


def table_settings(recipe: Mapping[str, Any]) -> TableSettings:
    """Check a recipe, and return its settings."""
    settings = typed(TableSettings, recipe, "table-1")
    for name in settings.datasets:
        if name not in BENCHMARKS:
            raise ValueError(
                f"the recipe of table-1 has an unknown dataset {name!r}; choose from {', '.join(BENCHMARKS)}"
            )
    for name, model in (settings.models | settings.peers["models"]).items():
        if "title" not in model:
            raise ValueError(f'the model {name!r} in the recipe of table-1 has no title; add title = "..."')
        for dataset in model.get("only", ()):
            if dataset not in settings.datasets:
                raise ValueError(
                    f"the recipe of table-1 restricts {name!r} to {dataset!r}, which is not one of its datasets: "
                    f"{', '.join(settings.datasets)}"
                )
        kind = model.get("symmetries")
        if kind is not None and (kind not in KINDS or model.get("only") != ["bsds300"]):
            raise ValueError(
                f"the recipe of table-1 has symmetries = {kind!r} for {name!r}; use {' or '.join(KINDS)}, and only in "
                "models with only = ['bsds300']"
            )
    for line in settings.table:
        if "title" not in line:
            raise ValueError('a line of the table in the recipe of table-1 has no title; add title = "..."')
        for name in line.get("models", ()):
            if name not in settings.models:
                raise ValueError(unknown_name("the recipe of table-1", "model", name, settings.models))
    return settings


def patch_symmetries(kind: str) -> Symmetries:
    """Return the symmetries of BSDS300's patches.

    >>> patch_symmetries("mirror").features
    63
    """
    return Symmetries.of_image((SIDE, SIDE), kind, mean_removed=True)


@dataclass(frozen=True)
class Cell:
    """One fit: a dataset, a model and a seed."""

    dataset: str
    model: str
    seed: int

    def __str__(self) -> str:
        return f"{self.dataset}, {self.model}, seed {self.seed}"

    def folder(self, root: Path) -> Path:
        """Return the folder of the cell's run, record and scores."""
        return root / "cells" / self.dataset / self.model / f"seed-{self.seed}"


@dataclass(frozen=True)
class CellRecord:
    """The record and the scores of a finished cell."""

    cell: Cell
    about: dict[str, Any]
    scores: Scores  # log likelihood of every test row, in nats


def all_settings(settings: TableSettings, cell: Cell) -> dict[str, Any]:
    """Return the settings of a cell: flow, training, and largest number of rows. Peers use the same sizes."""
    found: dict[str, Any] = {"most_rows": settings.most_rows}
    dataset, model = settings.datasets[cell.dataset], settings.models.get(cell.model, {})
    if "weight_power" in dataset:
        found["weight_power"] = model.get("weight_power", dataset["weight_power"])
    if model.get("closed_form"):
        return found
    if "whiten" in dataset and cell.model in settings.models:  # peers have no whitening layer
        found["whiten"] = dataset["whiten"] and model.get("whiten", True)
    if model.get("mirror"):
        found["mirror"] = True
    if model.get("symmetries"):
        found["symmetries"] = model["symmetries"]
    own = model.get(cell.dataset, {})
    if "published" in model:  # the settings of the paper's flows and of the dataset are not those of its authors
        found["published"] = model["published"]
        found["flow"] = merged(model.get("flow", {}), own.get("flow", {}))
        found["training"] = merged(settings.training, merged(model.get("training", {}), own.get("training", {})))
        return found
    for kind, common in (("flow", settings.flow), ("training", settings.training)):
        found[kind] = merged(common, merged(dataset.get(kind, {}), model.get(kind, {})))
    return found


def weighted(table: Benchmark, power: float) -> Benchmark:
    """Return a benchmark whose weights of training rows, if there are any, are raised to a power.

    A power below 1 accepts some bias for a larger effective sample.
    """
    if table.weights is None or power == 1:
        return table
    note = f"{table.note.rstrip('.')}, raised to the power {power}."
    return replace(table, weights=table.weights**power, note=note)


def load_rows(dataset: str, settings: TableSettings, folder: Path | None) -> Benchmark:
    """Load a benchmark, cut to ``most_rows`` rows in each split."""
    table, most_rows = load_benchmark(dataset, folder), settings.most_rows
    if max(len(table.train), len(table.validation), len(table.test)) <= most_rows:
        return table
    weights = None if table.weights is None else table.weights[:most_rows]
    splits = {name: getattr(table, name)[:most_rows] for name in ("train", "validation", "test")}
    note = f"Cut to {most_rows:,} rows of each split. {table.note}"
    return replace(table, **splits, weights=weights, provenance="partial", note=note)


@torch.no_grad()
def score(flow: Any, rows: np.ndarray[Any, np.dtype[np.float32]]) -> Scores:
    """Return the log likelihood of every row, in evaluation mode."""
    device = next(flow.parameters()).device
    pieces = torch.from_numpy(rows).split(ROWS_AT_ONCE)
    return torch.cat([flow.log_prob(piece.to(device)).cpu() for piece in pieces]).float().numpy()


def rounded(scores: Scores) -> Scores:
    """Round scores to a 64th of a nat.

    A row's score changes by less than 0.008, and a mean over thousands of rows by less than 0.0001, far below its
    error.

    >>> rounded(np.array([1.0, 1.01, -np.inf], np.float32))
    array([1.      , 1.015625,     -inf], dtype=float32)
    """
    return (np.round(scores.astype(np.float64) * STEPS_PER_NAT) / STEPS_PER_NAT).astype(np.float32)


def save_scores(path: Path, scores: Scores) -> None:
    """Write rounded scores atomically.

    The file holds the first bytes of all scores, then all second bytes, and so on. This order compresses to about half
    the size.
    """
    by_byte = np.ascontiguousarray(scores.astype("<f4").view(np.uint8).reshape(-1, 4).T)
    with replacing(path) as file:
        np.savez_compressed(file, by_byte=by_byte)


def load_scores(path: Path) -> Scores:
    """Read the scores that :func:`save_scores` wrote."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            by_byte = file["by_byte"]
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged; {_to_begin_again(path)}") from error
    return np.ascontiguousarray(by_byte.T).view("<f4").ravel().astype(np.float32)


def record_cell(
    root: Path, cell: Cell, table: Benchmark, fitted: FitResult, settings: TableSettings, command: str
) -> CellRecord:
    """Score the test rows and write the record. No other function of this package scores test rows of table 1."""
    scores = rounded(score(fitted.flow, table.test))
    about = {
        **asdict(cell),
        "command": command,
        "test": asdict(estimate([scores])),
        "validation": None if fitted.validation_loss is None else -fitted.validation_loss,
        "parameters": sum(parameter.numel() for parameter in fitted.flow.parameters()),
        "steps": fitted.steps,
        "best_step": fitted.best_step,
        "weights": fitted.weights,
        "stopped": fitted.stopped,
        "seconds": round(fitted.seconds, 1),
        "provenance": table.provenance,
        "note": table.note,
        "comparable": is_comparable(table),
        "settings": all_settings(settings, cell),
        "machine": machine(str(next(fitted.flow.parameters()).device)),
    }
    folder = cell.folder(root)
    folder.mkdir(parents=True, exist_ok=True)
    save_scores(folder / SCORES_FILE, scores)  # before the record: other processes read the scores of every record
    write_atomically(folder / RECORD_FILE, (json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode())
    return CellRecord(cell, about, scores)


def why_left_out(dataset: str, folder: Path | None) -> str | None:
    """Return why the published figures of a dataset cannot be rerun with the data here, or None if they can."""
    try:
        table = load_benchmark(dataset, folder)
    except MissingDataError:
        forms = [form for form in BENCHMARKS[dataset] if form.refusal is None]
        origins = [f"{' and '.join(names[0] for names in form.files)}, from {form.origin}" for form in forms]
        return f"the data is not here; it is {', or '.join(origins)}"
    return None if is_comparable(table) else f"only part of its test rows is here. {table.note}"


def is_comparable(table: Benchmark) -> bool:
    """Return whether scores on this test set compare with published scores: it has all test rows, or as many redrawn
    rows."""
    return len(table.test) == PUBLISHED[table.name].test


def is_recorded(root: Path, cell: Cell) -> bool:
    """Return whether a cell has a record."""
    return (cell.folder(root) / RECORD_FILE).exists()


def forget(root: Path, cell: Cell) -> None:
    """Remove the record and the scores of a cell."""
    for name in (RECORD_FILE, SCORES_FILE):
        (cell.folder(root) / name).unlink(missing_ok=True)


def read_cells(root: Path, settings: TableSettings) -> list[CellRecord]:
    """Read all records, sorted by name. Raises ValueError for a record made with other settings than this recipe's."""
    found = []
    for path in sorted((root / "cells").glob(f"*/*/seed-*/{RECORD_FILE}")):
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
            cell = Cell(about["dataset"], about["model"], about["seed"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} is damaged; {_to_begin_again(path)}") from error
        if cell.dataset in settings.datasets and about["settings"] != all_settings(settings, cell):
            raise ValueError(
                f"{path.parent} was recorded with other settings than this recipe's, for example with --quick; "
                f"choose another folder, or {_to_begin_again(path)}"
            )
        found.append(CellRecord(cell, about, load_scores(path.with_name(SCORES_FILE))))
    return found


def _to_begin_again(path: Path) -> str:
    return f"remove {path.parent}, and the same command runs that cell again"


def by_seed(records: Sequence[CellRecord], dataset: str, model: str) -> dict[int, CellRecord]:
    """Return the records of one dataset and model, by seed."""
    return {r.cell.seed: r for r in records if (r.cell.dataset, r.cell.model) == (dataset, model)}
