"""Table 1: test log likelihoods on the benchmark datasets, and paired comparisons of models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from cubicflow.flows import Flow, published, tabular, whiten
from cubicflow.training import FitResult, TrainingError, TrainingInterrupted
from paper.cells import (
    Cell,
    TableSettings,
    all_settings,
    forget,
    is_recorded,
    load_rows,
    patch_symmetries,
    read_cells,
    record_cell,
    table_settings,
    weighted,
    why_left_out,
)
from paper.data import Benchmark, find_form
from paper.data.folders import MissingDataError, data_folder, how_to_choose_folder
from paper.experiment import Request, UnfinishedError
from paper.gaussian import fit_gaussian
from paper.recipe_files import Settings
from paper.table_1_report import table_markdown
from paper.table_1_summary import summarise, table_csv


def run(request: Request) -> None:
    """Train and score every chosen cell without a record, and rebuild the table from all records.

    If the training of a cell fails, the other cells still run. With ``--seconds 0`` only the table is rebuilt. Raises
    MissingDataError, before anything is trained, if the data of a requested dataset is missing.
    """
    settings = table_settings(request.recipe)
    cells = chosen_cells(request, settings, settings.models)
    failed: list[str] = []
    left_out: set[str] = set()
    try:
        if cells and request.deadline.over():
            raise request.unfinished()
        if len(request.datasets) > 1 or (request.datasets and request.overwrite):  # else it is loaded first in any case
            check_data(request.datasets, request.data)
        if not request.datasets:
            left_out = leave_out(dict.fromkeys(cell.dataset for cell in cells), request)
        cells = [cell for cell in cells if cell.dataset not in left_out]
        for cell in cells if request.overwrite else ():  # of records without data, nothing is forgotten
            forget(request.folder, cell)
            request.begin(cell.folder(request.folder))
        read_cells(request.folder, settings)  # raises for records of another recipe, before anything is trained
        for dataset in dict.fromkeys(cell.dataset for cell in cells):
            table = load_rows(dataset, settings, request.data)
            for cell in (cell for cell in cells if cell.dataset == dataset):
                try:
                    run_cell(cell, table, settings, request)
                except TrainingError as error:
                    request.report(f"{cell}: failed. {error}")
                    failed.append(str(cell))
    except (UnfinishedError, TrainingInterrupted):
        if has_run(request):
            write_table(request, settings)
        raise
    if has_run(request) or cells:
        write_table(request, settings)
    if failed:
        raise TrainingError(f"{len(failed)} of {len(cells)} cells failed, for the reasons above: {'; '.join(failed)}")
    if left_out and not cells:
        folder = data_folder(request.data)
        where = f"in {folder}" if folder.is_dir() else f"here, and there is no folder {folder}"
        raise MissingDataError(
            f"nothing was run: no dataset is complete {where}. The lines above name the files; to download some, use "
            f"paper.data.download. {how_to_choose_folder(folder)}"
        )


def has_run(request: Request) -> bool:
    """Return whether a cell was run in the folder, now or before."""
    return (request.folder / "cells").exists()


def leave_out(datasets: Iterable[str], request: Request) -> set[str]:
    """Return the datasets whose published figures cannot be rerun with the data here, and report why."""
    left_out = set()
    for dataset in datasets:
        if why := why_left_out(dataset, request.data):
            request.report(f"{dataset.upper()} is left out: {why}")
            left_out.add(dataset)
    return left_out


def check_data(datasets: Iterable[str], folder: Path | None) -> None:
    """Raise MissingDataError if files of some datasets are missing. The message names the files of each."""
    missing = []
    for dataset in dict.fromkeys(datasets):
        try:
            find_form(dataset, folder)
        except MissingDataError as error:
            missing.append(str(error))
    if missing:
        raise MissingDataError("\n".join(missing))


def chosen_cells(request: Request, settings: TableSettings, models: Mapping[str, Any]) -> list[Cell]:
    """Return the chosen cells without a record; with ``overwrite``, all chosen cells."""
    datasets = _chosen("dataset", request.datasets, settings.datasets)
    names = _chosen("model", request.models, models)
    for model in request.models:
        only = models[model.lower()].get("only", datasets)
        if not set(only) & set(datasets):
            raise ValueError(
                f"the recipe of table-1 restricts {model!r} to {', '.join(only)}; choose one of these, not "
                f"{', '.join(datasets)}"
            )
    cells = [
        Cell(dataset, model, seed)
        for dataset in datasets
        for model in names
        if dataset in models[model].get("only", datasets)
        for seed in _seeds(request, settings.datasets[dataset], models[model])
    ]
    # Run the first seed of all models before the second seed.
    cells.sort(key=lambda cell: (datasets.index(cell.dataset), cell.seed))
    return [cell for cell in cells if request.overwrite or not is_recorded(request.folder, cell)]


def _seeds(request: Request, dataset: Settings, model: Settings) -> Sequence[int]:
    if request.seed is not None:
        return [request.seed]
    return list((model if "seeds" in model else dataset)["seeds"])


def run_cell(cell: Cell, table: Benchmark, settings: TableSettings, request: Request) -> None:
    """Fit one cell, resuming an earlier call, and score its test rows."""
    used = all_settings(settings, cell)
    table = weighted(table, used.get("weight_power", 1))
    request.report(f"{cell}: {table.note}")
    closed_form = settings.models[cell.model].get("closed_form", False)
    fitted = fit_gaussian(table) if closed_form else train(cell, table, used, request)
    test = record_cell(request.folder, cell, table, fitted, settings, request.command).about["test"]
    request.report(f"{cell}: test {test['mean']:.3f} ± {test['error']:.3f} nats after {fitted.steps:,} steps")


def train(cell: Cell, table: Benchmark, used: Settings, request: Request) -> FitResult:
    """Train the flow of a cell."""

    def make() -> Flow:
        if "published" in used:
            return published(used["published"], table.features, **used["flow"], seed=cell.seed)
        flow = tabular(table.features, **used["flow"], seed=cell.seed)
        return whiten(flow, table.train, table.weights) if used.get("whiten") else flow

    rows = table.train
    if used.get("mirror"):
        rows = patch_symmetries("mirror").images(torch.from_numpy(rows)).numpy()
    return request.train(
        make,
        (rows, None, table.weights),
        table.validation,
        used["training"],
        cell.folder(request.folder) / "run",
        seed=cell.seed,
        symmetries=patch_symmetries(used["symmetries"]) if "symmetries" in used else None,
    )


def write_table(request: Request, settings: TableSettings) -> None:
    """Write the table from all records in the folder."""
    records = read_cells(request.folder, settings)
    unseen = settings.datasets.keys() - {record.cell.dataset for record in records}
    left_out = {dataset: why for dataset in unseen if (why := why_left_out(dataset, request.data))}
    summary = summarise(records, settings, left_out)
    request.write("table-1.md", table_markdown(summary))
    request.write_csv("table-1.csv", table_csv(records))
    request.record(summary)


def _chosen(kind: str, requested: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    names = [name.lower() for name in requested] or list(known)
    for name in names:
        if name not in known:
            raise ValueError(f"the recipe of table-1 has no {kind} {name!r}; it has {', '.join(known)}")
    return names
