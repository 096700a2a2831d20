"""The rows of a table, encoded for training, by part of the split."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from cubicflow.tables import Split, Table
from cubicflow.tables.model.table_model import Encoder
from cubicflow.tables.schema.plain_rows import load_numbers
from cubicflow.tables.table_rows import TableRows


class SplitRows(NamedTuple):
    train: TableRows
    validation: TableRows
    test: TableRows


def load_parts(
    table: Table, encoder: Encoder, split: Split, missing: str, rows: int, folder: Path | None = None
) -> SplitRows:
    numbers, chosen = load_numbers(table, encoder.schema, split, missing, rows, folder)
    return SplitRows(*(TableRows(encoder, numbers).part(torch.from_numpy(part)) for part in chosen))
