"""The rows of a table, encoded for training, by part of the split."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cubicflow.tables import Split, Table
from cubicflow.tables.model.table_model import Encoder
from cubicflow.tables.table_rows import TableRows, load_numbers


class SplitRows(NamedTuple):
    train: TableRows
    validation: TableRows
    test: TableRows


def load_parts(
    table: Table, encoder: Encoder, split: Split, missing: str, rows: int, folder: Path | None = None
) -> SplitRows:
    numbers, chosen = load_numbers(table, encoder.schema, split, missing, rows, folder)
    return SplitRows(*(TableRows(encoder, numbers).part(part) for part in chosen))
