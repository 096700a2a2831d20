"""A fitted table: the flow of a run folder together with the schema, the split and the file it came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from cubicflow.flows import Flow, Mixture, load
from cubicflow.flows.serialization import CONFIG_FILE, FlowFileError, read_config
from cubicflow.tables.column import Column
from cubicflow.tables.encoder import TableEncoder
from cubicflow.tables.errors import TableError
from cubicflow.tables.fingerprint import fingerprint
from cubicflow.tables.infer import Inferred
from cubicflow.tables.options import Missing
from cubicflow.tables.pieces import pieces
from cubicflow.tables.schema import Schema
from cubicflow.tables.scoring import log_likelihood
from cubicflow.tables.source import Table
from cubicflow.tables.splits import PARTS, Split

SAMPLE_ROWS = 1 << 14
SECTION = "table"


class Scores(NamedTuple):
    """Log likelihoods of the complete rows among ``read`` rows, their ``numbers``, and their ``parts`` of the split."""

    log_likelihood: NDArray[np.float64]
    weights: NDArray[np.float64] | None
    numbers: NDArray[np.int64]
    parts: NDArray[np.int8]
    read: int


@dataclass(frozen=True)
class FittedTable:
    """What a run knows of its table."""

    flow: Flow | Mixture
    schema: Schema
    split: Split
    missing: Missing
    source: str
    fingerprint: str
    parts: dict[str, int]

    @property
    def encoder(self) -> TableEncoder:
        return TableEncoder(self.schema)

    def is_source(self, table: Table) -> bool:
        """Whether this is the very table that the model was fitted to."""
        return fingerprint(table) == self.fingerprint

    def score(self, table: Table, missing: Missing | None = None, *, weights: bool = False) -> Iterator[Scores]:
        """The log likelihood of every complete row, piece by piece. Refuses a table that does not fit the schema."""
        weights = weights and self.schema.weights is not None and self.schema.weights.name in table.types
        columns = self.schema.check(table, weights=weights)
        encoder = self.encoder
        try:
            for piece in pieces(table, columns, missing or self.missing):
                numbers = encoder.read(piece.batch, weights=weights)
                scores = log_likelihood(self.flow, encoder, numbers)
                yield Scores(scores, numbers.weights, piece.numbers, self.split.parts_of(piece.numbers), piece.read)
        except TableError as error:
            raise error.about(table.path) from None

    def sample(
        self, rows: int, *, temperature: float = 1.0, seed: int | None = None, given: dict[str, str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows with the table's own columns, types and words, piece by piece."""
        encoder = self.encoder
        weight = next(self.flow.parameters())
        generator = torch.Generator(weight.device)
        generator.manual_seed(seed) if seed is not None else generator.seed()
        encoder.context_from(given or {}, 1)  # refuses before anything is drawn
        for start in range(0, rows, SAMPLE_ROWS):
            count = min(SAMPLE_ROWS, rows - start)
            context, columns = encoder.context_from(given or {}, count)
            if context is None:
                x = self.flow.sample(count, temperature=temperature, generator=generator)
            else:
                told = torch.from_numpy(context).to(weight.device, weight.dtype)
                x = self.flow.sample(1, told, temperature=temperature, generator=generator)[0]
            yield encoder.decode(x.double().cpu().numpy(), columns)

    def sample_like(self, rows: pa.RecordBatch, number: int, *, seed: int) -> pa.RecordBatch:
        """``number`` samples; of a conditional model one for each of the rows, given that row's context."""
        if not self.schema.context:
            return pa.Table.from_batches(self.sample(number, seed=seed)).combine_chunks().to_batches()[0]
        encoder = self.encoder
        weight = next(self.flow.parameters())
        told = torch.from_numpy(encoder.read(rows).context).to(weight.device, weight.dtype)
        x = self.flow.sample(1, told, seed=seed, batch_size=SAMPLE_ROWS)[0]
        return encoder.decode(x.double().cpu().numpy())

    def decimals(self, given: Mapping[str, str] | None = None) -> dict[str, int]:
        """The digits after the point with which columns are written as text; none where more of them were given."""
        found = {column.name: _digits(column) for column in self.schema.columns}
        written = {name: _digits_of(text) for name, text in (given or {}).items()}
        return {name: digits for name, digits in found.items() if digits is not None and written.get(name, 0) <= digits}


def section(found: Inferred, table: Table, split: Split, missing: Missing) -> dict[str, Any]:
    """What a run's config keeps of its table."""
    return {
        "source": str(table.path.resolve()),
        "fingerprint": fingerprint(table),
        "missing": missing,
        "split": split.to_json(),
        "parts": found.parts,
        "schema": found.schema.to_json(),
    }


def load_fitted(folder: str | Path, device: str | None = None) -> FittedTable:
    """Read a run that was fitted to a table. Nothing in the folder is trusted, and nothing is executed."""
    path = Path(folder) / CONFIG_FILE
    about = read_config(Path(folder)).get(SECTION)
    if not isinstance(about, dict):
        raise FlowFileError(path, "the run was not fitted to a table with 'cubicflow fit'")
    try:
        schema, split = Schema.from_json(about.get("schema")), Split.from_json(about.get("split"))
    except (TableError, RecursionError, OverflowError) as error:
        raise FlowFileError(path, f"its table is not described rightly: {error}") from None
    missing, source, mark, parts = (about.get(key) for key in ("missing", "source", "fingerprint", "parts"))
    counted = isinstance(parts, dict) and sorted(parts) == sorted(PARTS)
    if missing not in ("error", "drop") or not isinstance(source, str) or not isinstance(mark, str) or not counted:
        raise FlowFileError(path, "its table is not described rightly: source, fingerprint, missing or parts is wrong")
    flow = load(folder, checked_device(device))
    encoder = TableEncoder(schema)
    shape = getattr(flow, "shape", None)
    if tuple(shape or ()) != (encoder.features,) or flow.context_features != encoder.context_features:
        raise FlowFileError(path, f"its table has {encoder.features} columns to model, its flow has another shape")
    return FittedTable(flow, schema, split, missing, source, mark, dict(parts))  # type: ignore[arg-type] # checked above


def checked_device(name: str | None) -> str | None:
    """A device that torch can use, or an error that says why not."""
    if name is None:
        return None
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise TableError(f"the device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    return name


def read_history(folder: str | Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl that are whole."""
    path = Path(folder) / "metrics.jsonl"
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error}") from None
    history = []
    for line in lines:
        try:
            metrics = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(metrics, dict) and isinstance(metrics.get("step"), int):
            history.append(metrics)
    return history


def _digits_of(text: str) -> int:
    try:
        exponent = Decimal(text).normalize().as_tuple().exponent
    except InvalidOperation:
        return 0
    return max(-exponent, 0) if isinstance(exponent, int) else 0


def _digits(column: Column) -> int | None:
    if column.kind == "stepped" and column.grid is not None:
        return column.grid.decimals
    return column.decimals if column.kind == "real" else None
