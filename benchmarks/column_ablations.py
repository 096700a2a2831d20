"""Ablations of the model of columns: the defaults, and one change to the defaults at a time.

    python -m benchmarks.column_ablations --data FOLDER [--jobs 10] [--device cpu] [--only WORD ...] [--most-steps N]

FOLDER holds penguins.csv and diamonds.csv. Only their training rows under the split of `cubicflow fit` are used. The
other tables are scikit-learn's bundled tables and one synthetic table. The rows of each table are divided into inner
training and validation rows, four to one, in one or two ways. Every change is trained on the inner training rows. The
validation rows choose the best weights, and their mean log probability is the score. Each job is one process with one
thread.

Changes:
    start        another seed with the same settings; smaller differences than this one are chance
    order        order of the columns: reversed, random, or fewest outcomes first; "random in training" draws a new
                 order for every row and training step, so that each column is learned given any of the others
    core         a transformer instead of masked residual networks
    bins         number of bins of the splines
    scale        "plain" is even between the smallest and the largest value; the default follows the quantiles
    dropout      dropout of hidden units; "cell dropout" hides whole cells

A cell is one table with one change. The command writes a JSON record for each cell to results/column_ablations, and the
page docs/results/column_ablations.md from all records. A cell that has a record is not run again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

from benchmarks import any_order
from cubicflow.files import write_atomically
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.laws.cells import Cells, NumberCells
from cubicflow.tables.laws.independent import IndependentColumns
from cubicflow.tables.model.cell_encoder import CellEncoder
from cubicflow.tables.model.columns import ModelOfColumns, suited_columns, suited_columns_model
from cubicflow.tables.model.rules import order_of
from cubicflow.tables.read.table import in_memory
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.inference import TableOptions, infer
from cubicflow.tables.schema.plain_rows import Numbers
from cubicflow.tables.schema.split import Split, Undivided
from cubicflow.tables.schema.usable_rows import Missing
from cubicflow.tables.table_rows import TableRows
from cubicflow.training import TrainingConfig, fit

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "column_ablations"
PAGE = ROOT / "docs" / "results" / "column_ablations.md"
FOLDS = 5  # one fold is the validation rows
VALIDATIONS = 25  # validations in one fit
MOST_VALIDATED = 1_000  # validation rows that choose the best weights; the final score uses all of them
VERSION = 1  # version of the record format


class Source(NamedTuple):
    """A table: the function that reads it, the number of ways to divide it, and the limit on training steps."""

    read: Callable[[Path], pd.DataFrame]
    divisions: int
    most_steps: int


class Change(NamedTuple):
    """One difference from the defaults: model settings, the order of the columns, their scale, or the seed."""

    part: str
    value: str
    settings: dict[str, Any] = {}  # noqa: RUF012 - never written to

    @property
    def name(self) -> str:
        return f"{self.part} {self.value}".strip()


# --- tables ---


def training_rows(name: str) -> Callable[[Path], pd.DataFrame]:
    """Return a reader of a CSV file's training rows, under the split of `cubicflow fit`."""

    def read(data: Path) -> pd.DataFrame:
        frame = pd.read_csv(data / f"{name}.csv")
        return frame[Split().parts_of(np.arange(len(frame))) == 0]

    return read


def bundled(load: Callable[..., Any], **how: Any) -> Callable[[Path], pd.DataFrame]:
    """Return a reader of a table bundled with scikit-learn. Class labels become words."""

    def read(_: Path) -> pd.DataFrame:
        found = load(as_frame=True, **how)
        if "target_names" in found:
            return found.frame.assign(target=np.asarray(found.target_names)[found.target])
        return found.frame

    return read


def drawn(_: Path) -> pd.DataFrame:
    """Draw 3,000 rows with words, counts, prices, an atom at 0 and missing values.

    Each column depends on earlier columns.
    """
    rng = np.random.default_rng(0)
    rows = 3_000
    kind = rng.choice(5, rows, p=[0.4, 0.25, 0.2, 0.1, 0.05])
    age = rng.poisson(20 + 12 * kind)
    side = np.where(rng.random(rows) < 1 / (1 + np.exp(-(age - 35) / 4)), "left", "right")
    hours = np.where(rng.random(rows) < 0.3, 0.0, rng.gamma(2.0, 1 + kind, rows))
    angle = np.where(side == "left", 1, -1) * age / 10 + 0.3 * rng.normal(size=rows)
    price = 10 * np.round(100 * np.exp(0.02 * age + 0.3 * rng.normal(size=rows))) + 9.99 * (kind > 2)
    frame = pd.DataFrame({"kind": [f"kind {k}" for k in kind], "age": age, "side": side, "hours": hours})
    frame = frame.assign(angle=angle, price=price.round(2))
    frame.loc[rng.random(rows) < np.where(hours == 0, 0.5, 0.05), "angle"] = np.nan
    return frame


# The slowest table comes first, so that no process runs alone at the end.
TABLES = {
    "diamonds": Source(training_rows("diamonds"), 1, 600),
    "breast cancer": Source(bundled(load_breast_cancer), 2, 600),
    "drawn": Source(drawn, 2, 600),
    "wine": Source(bundled(load_wine), 2, 600),
    "diabetes": Source(bundled(load_diabetes, scaled=False), 2, 600),
    "penguins": Source(training_rows("penguins"), 2, 600),
    "iris": Source(bundled(load_iris), 2, 600),
}

DEFAULTS = Change("defaults", "")
RANDOM_ORDERS = Change("order", "random in training")
CHANGES = [
    DEFAULTS,
    Change("start", "another"),
    Change("order", "reversed"),
    Change("order", "drawn"),
    Change("order", "fewest outcomes first"),
    RANDOM_ORDERS,
    Change("core", "transformer", {"core": "attention"}),
    *(Change("bins", str(bins), {"num_bins": bins}) for bins in (4, 8, 16, 32)),
    Change("scale", "plain"),
    *(Change("dropout", str(share), {"dropout": share}) for share in (0.0, 0.1, 0.2, 0.4)),
    *(Change("cell dropout", str(share), {"cell_dropout": share}) for share in (0.0, 0.1, 0.3)),
]


# --- one cell ---


def numbers_of(frame: pd.DataFrame) -> tuple[Schema, Floats]:
    """Return the inferred schema, and the rows as plain numbers."""
    rows = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    found = infer(in_memory(rows), TableOptions(missing=Missing.MODEL), Undivided())
    return found.schema, found.numbers


def plain(cells: Cells) -> Cells:
    """Return cells with a scale that is even between the smallest and the largest value. The tails are unchanged."""
    if not isinstance(cells, NumberCells) or cells.listed:
        return cells
    scale = cells.scale
    edges, masses = (scale.edges[0], scale.edges[-1]), (float(np.sum(scale.masses)),)
    return replace(cells, scale=replace(scale, edges=edges, masses=masses))


def changed(encoder: CellEncoder, change: Change) -> CellEncoder:
    """Return the encoder with the change's column order or scale. Other changes leave the encoder as it is."""
    cells, names = encoder.cells, encoder.order
    if change.name == "scale plain":
        cells = {name: plain(each) for name, each in cells.items()}
    elif change.name == "order reversed":
        names = names[::-1]
    elif change.name == "order drawn":
        names = np.random.default_rng(1).permutation(names).tolist()
    elif change.name == "order fewest outcomes first":
        names = sorted(names, key=lambda name: (cells[name].shape != 0, cells[name].outcomes))
    independent = IndependentColumns({name: cells[name] for name in names}, encoder.independent.shares)
    return CellEncoder(encoder.schema, independent, {}, order_of(names, encoder.rules), encoder.rules)


@cache
def warm_up(device: str) -> None:
    """Run a fit of two steps once in a process, so that the time of imports and first calls is not measured."""
    schema, numbers = numbers_of(drawn(Path())[:100])
    encoder = CellEncoder.learn(schema, numbers, None, None)
    rows = TableRows(encoder, numbers)
    config = TrainingConfig(steps=2, device=device)
    fit(suited_columns_model(encoder, numbers, 0, {}), rows, rows, config=config, progress=False)


def run_cell(table: str, change: Change, data: Path, device: str, most_steps: int | None) -> dict[str, Any]:
    """Train and score one change on every division of a table, and return the record."""
    torch.set_num_threads(1)
    warm_up(device)
    source = TABLES[table]
    schema, numbers = numbers_of(source.read(data))
    fold = np.random.default_rng(0).permutation(len(numbers)) % FOLDS
    seed = 1 if change.part == "start" else 0
    divisions = []
    for division in range(source.divisions):
        train, validation = numbers[fold != division], numbers[fold == division]
        encoder = changed(CellEncoder.learn(schema, train, None, None), change)
        config = {**ModelOfColumns.suited_training(len(train)), "device": device, "seed": seed}
        steps = min(config["steps"], source.most_steps, most_steps or source.most_steps)
        config |= {"steps": steps, "validate_every": max(steps // VALIDATIONS, 1), "patience": 0}
        began = time.process_time()
        model: Any = suited_columns_model(encoder, train, seed, change.settings)
        if change == RANDOM_ORDERS:
            model = any_order.any_order_model(encoder, len(train), seed)
        training, validating = (TableRows(encoder, part) for part in (train, validation[:MOST_VALIDATED]))
        result = fit(model, training, validating, config=TrainingConfig(**config), progress=False)
        seconds = time.process_time() - began
        if change == RANDOM_ORDERS:
            scores = any_order.log_probability(result.flow, encoder, validation)
        else:
            scores = ModelOfColumns(encoder, result.flow).score(Numbers(validation, None, None)).log_p
        divisions.append(
            {
                "training_rows": len(train),
                "validation_rows": len(validation),
                "log_mass": float(scores.mean()),
                "standard_error": float(scores.std() / np.sqrt(len(scores))),
                "processor_seconds": round(seconds, 2),
                "steps": result.steps,
                "best_step": result.best_step,
                "settings": {**suited_columns(len(train)), "core": "mlp", **change.settings},
            }
        )
    return {
        "version": VERSION,
        "table": table,
        "change": change.name,
        "columns": numbers.shape[1],
        "device": device,
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "divisions": divisions,
    }


# --- all cells ---


def path_of(folder: Path, table: str, change: str) -> Path:
    return folder / f"{table} {change}.json".replace(" ", "_")


def recorded(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the records of a folder, keyed by table and change."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {(record["table"], record["change"]): record for record in found if record["version"] == VERSION}


def is_default(table: str, change: Change, data: Path) -> bool:
    """Return whether the settings of a change equal the defaults for this table."""
    if not change.settings:
        return False
    rows = len(TABLES[table].read(data)) * (FOLDS - 1) // FOLDS
    suited = {"core": "mlp", **suited_columns(rows)}
    return all(suited[name] == value for name, value in change.settings.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FOLDER", help="folder of penguins.csv and diamonds.csv"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="number of parallel processes, one thread each"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="tables or parts, such as iris, order, bins")
    parser.add_argument("--most-steps", type=int, metavar="N", help="limit on training steps, for a quick try")
    parser.add_argument("-o", "--output", type=Path, default=RECORDS, metavar="FOLDER", help="folder of the records")
    arguments = parser.parse_args()
    known = {*TABLES, *(change.part for change in CHANGES), *(change.name for change in CHANGES)}
    if unknown := [word for word in arguments.only or () if word not in known]:
        parser.error(f"--only {unknown[0]}: unknown table or part; choose from {', '.join(sorted(known))}")
    if arguments.jobs < 1:
        parser.error(f"--jobs should be 1 or more, got {arguments.jobs}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    done = recorded(arguments.output)
    cells = []
    words = set(arguments.only or ())
    tables = [table for table in TABLES if table in words] or list(TABLES)
    changes = [change for change in CHANGES if {change.part, change.name} & words] or CHANGES
    for table in tables:
        try:
            TABLES[table].read(arguments.data)
        except OSError as error:
            print(f"{table} is left out: {error}", file=sys.stderr)
            continue
        cells += [(table, change) for change in changes if (table, change.name) not in done]
    cells = [(table, change) for table, change in cells if not is_default(table, change, arguments.data)]
    run_all(cells, arguments)
    write_page(arguments.output)


def run_all(cells: list[tuple[str, Change]], arguments: argparse.Namespace) -> None:
    """Run the cells in parallel processes, and write the record of each cell when it is done."""
    context = multiprocessing.get_context("spawn")
    how = (arguments.data, arguments.device, arguments.most_steps)
    with ProcessPoolExecutor(arguments.jobs, mp_context=context) as pool:
        running = {pool.submit(run_cell, table, change, *how): (table, change) for table, change in cells}
        for i, future in enumerate(as_completed(running), start=1):
            table, change = running[future]
            record = future.result()
            path = path_of(arguments.output, table, change.name)
            write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())
            scores = ", ".join(f"{part['log_mass']:.3f}" for part in record["divisions"])
            seconds = sum(part["processor_seconds"] for part in record["divisions"])
            print(f"{i} of {len(cells)}: {table}, {change.name}: {scores} in {seconds:.0f} s", flush=True)


# --- the page ---


def mean_score(record: dict[str, Any]) -> float:
    return float(np.mean([part["log_mass"] for part in record["divisions"]]))


def seconds_of(record: dict[str, Any]) -> float:
    return float(sum(part["processor_seconds"] for part in record["divisions"]))


def machines_of(base: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Return the tables of each machine, by the description of the machine."""
    found: dict[str, list[str]] = {}
    for table, record in base.items():
        where = f"{record['cores']} cores, device {record['device']}, torch {record['torch']}"
        found.setdefault(where, []).append(table)
    return found


def write_page(folder: Path) -> None:
    """Write a page of a folder's records: the page of the docs, or a page beside another folder."""
    records = recorded(folder)
    tables = [table for table in TABLES if (table, DEFAULTS.name) in records]
    if not tables:
        return
    base = {table: records[table, DEFAULTS.name] for table in tables}
    machines = "; ".join(f"{where} ({', '.join(names)})" for where, names in machines_of(base).items())
    lines = [
        "# Ablations of the model of columns",
        "",
        "`python -m benchmarks.column_ablations --data FOLDER` changes one default of `cubicflow fit` at a time.",
        f"Each cell ran with one thread. Machines: {machines}.",
        "The line of the defaults shows the mean log probability of a row, in nats. The lines below show differences",
        "from the defaults: above 0 is better.",
        "",
        "All rows are training rows of `cubicflow fit`; the test rows are not used. The rows are divided into inner",
        "training and validation rows, four to one. The score is the mean over the validation rows; at most a",
        "thousand of them also choose the best weights. Training stops at the steps below, earlier than in a default",
        "fit. The line *start: another* shows the size of differences by chance. The defaults depend on the number of",
        "rows; a cell is empty where the change equals the default. The last column is processor time relative to the",
        f"defaults on the same tables. The records are in `results/{folder.name}/`.",
        "",
    ]
    head = ["", *tables, "processor time"]
    lines += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for title, show in (
        ("rows for training", lambda record: f"{record['divisions'][0]['training_rows']:,}"),
        ("columns", lambda record: str(record["columns"])),
        ("ways to divide the rows", lambda record: str(len(record["divisions"]))),
        ("most steps", lambda record: str(max(part["steps"] for part in record["divisions"]))),
        ("processor seconds of a fit", lambda record: f"{seconds_of(record) / len(record['divisions']):.0f}"),
        ("**defaults**", lambda record: f"**{mean_score(record):.3f}**"),
    ):
        last = "1" if title == "**defaults**" else ""
        lines.append(f"| {title} | {' | '.join(show(base[table]) for table in tables)} | {last} |")
    for change in CHANGES[1:]:
        there = [table for table in tables if (table, change.name) in records]
        if not there:
            continue
        found = {table: records[table, change.name] for table in there}
        shown = [f"{mean_score(found[t]) - mean_score(base[t]):+.3f}" if t in found else "" for t in tables]
        time_ratio = sum(map(seconds_of, found.values())) / sum(seconds_of(base[table]) for table in there)
        lines.append(f"| {change.part}: {change.value} | {' | '.join(shown)} | {time_ratio:.2f} |")
    page = PAGE if folder == RECORDS else folder.parent / f"{folder.name}.md"
    page.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
