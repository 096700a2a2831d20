"""MINIBOONE: signal events of a neutrino detector (43 columns)."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from paper.data.benchmark_table import (
    ARCHIVE,
    Benchmark,
    Form,
    Rows,
    Splits,
    discrete_columns,
    load_array,
    make_benchmark,
    single_file_reader,
    split_and_normalise,
)
from paper.data.text import open_text, parse_numbers, plain_or_packed

COLUMNS = 50
OUTLIER = -100.0


def read_text(path: Path) -> Rows:
    """Return the signal rows of MiniBooNE_PID.txt without outliers and discrete columns, which is the published array.

    The first line of the file gives the number of signal rows (36,499) and of background rows. Signal rows come first.
    """
    with open_text(path) as file:
        counts = file.readline().split()
        if len(counts) != 2 or not all(count.isdigit() for count in counts):
            raise ValueError(
                f"{path} is not MiniBooNE_PID.txt: its first line is {' '.join(counts)[:80]!r}, expected two row "
                "counts; download it again"
            )
        signal = int(counts[0])
        rows = parse_numbers(itertools.islice(file, signal), path)
    if rows.shape != (signal, COLUMNS):
        raise ValueError(
            f"{path} is incomplete: its signal rows have shape {rows.shape}, expected ({signal}, {COLUMNS}); "
            "download it again"
        )
    rows = rows[~(rows[:, 0] < OUTLIER)]
    return rows[:, ~discrete_columns(rows)]  # drops columns 5, 13, 22, 26, 34, 44, 45 of the complete file


def _read_splits(paths: tuple[Path, ...], _: int) -> Benchmark:
    """Read splits that are already normalised, with row weights if train_weights.npy is in the same folder."""
    splits = Splits(*(load_array(path).astype(np.float32) for path in paths))
    weights_path = paths[0].with_name("train_weights.npy")
    weights = None
    if weights_path.exists():
        weights = load_array(weights_path, dimensions=1).astype(np.float32)
        if len(weights) != len(splits.train) or not (np.isfinite(weights) & (weights > 0)).all():
            raise ValueError(
                f"{weights_path} must hold one positive weight for each of the {len(splits.train)} training rows; "
                f"it has {len(weights)} values; remove the file, or write it again"
            )
    return make_benchmark("miniboone", splits, source="miniboone/{train,val,test}.npy", weights=weights)


FORMS = (
    Form(
        "published",
        (("miniboone/data.npy",),),
        ARCHIVE,
        single_file_reader("miniboone", split_and_normalise, prefix="miniboone/"),
    ),
    Form(
        "raw",
        (plain_or_packed("miniboone/MiniBooNE_PID.txt"),),
        "https://archive.ics.uci.edu/dataset/199",
        single_file_reader("miniboone", split_and_normalise, read_text),
    ),
    Form(
        "splits",
        (("miniboone/train.npy",), ("miniboone/val.npy",), ("miniboone/test.npy",)),
        "your own splits, already normalised, with an optional train_weights.npy",
        _read_splits,
    ),
)
