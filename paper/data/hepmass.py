"""HEPMASS: simulated particle collisions, signal rows of mass 1000 (21 columns).

UCI's files have 7,000,000 and 3,500,000 rows; the published copies are the first tenth of each. Reading stops after
that tenth, so UCI's files and the published copies give the same table. The number of signal rows is compared with the
published one.
"""

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
    make_benchmark,
)
from paper.data.text import open_text, parse_numbers, plain_or_packed

TRAIN_ROWS, TEST_ROWS = 700_000, 350_000


def read_signal(train_path: Path, test_path: Path) -> tuple[Rows, Rows]:
    """Return the rows of label 1 of both files, without the label."""
    train_names, test_names = (_column_names(path) for path in (train_path, test_path))
    # The header of the test file names one column more than that of the train file. That column is left out.
    if test_names[: len(train_names)] != train_names:
        raise ValueError(
            f"{test_path} has columns {', '.join(test_names)}; expected the columns of {train_path} first: "
            f"{', '.join(train_names)}; download both again"
        )
    columns = range(len(train_names))
    return _signal(train_path, TRAIN_ROWS, columns), _signal(test_path, TEST_ROWS, columns)


def _column_names(path: Path) -> list[str]:
    with open_text(path) as file:
        names = [name.strip(' #"\n') for name in file.readline().split(",")]
    if names[0] != "label":
        raise ValueError(
            f"{path} is not a HEPMASS file: its first column is {names[0][:80]!r}, expected '# label'; "
            "download it again"
        )
    return names


def _signal(path: Path, limit: int, columns: range) -> Rows:
    with open_text(path) as file:
        lines = itertools.islice(file, 1, 1 + limit)
        rows = parse_numbers(lines, path, delimiter=",", columns=columns)
    return np.asarray(rows[rows[:, 0] == 1, 1:])


def prepare(train: Rows, test: Rows, source: str) -> Splits:
    """Normalise by train's mean and sample std, then drop discrete columns. Validation is the last tenth of train."""
    if len(train) < 10 or len(test) < 1:
        raise ValueError(
            f"{source}: {len(train)} training and {len(test)} test rows have label 1, expected at least 10 and "
            "at least 1; download the file again"
        )
    mean, std = train.mean(axis=0), train.std(axis=0, ddof=1)
    with np.errstate(invalid="ignore"):  # a constant column becomes NaN, which discrete_columns does not detect
        constant = std == 0
        train, test = (train - mean) / std, (test - mean) / std
    kept = ~(discrete_columns(train) | constant)
    train, test = train[:, kept], test[:, kept]
    validation = int(0.1 * len(train))
    return Splits(train[:-validation], train[-validation:], test)


def _read(paths: tuple[Path, ...], _: int) -> Benchmark:
    source = " and ".join(path.name for path in paths)
    return make_benchmark("hepmass", prepare(*read_signal(*paths), source), source=source)


FORMS = (
    Form(
        "raw",  # also reads the published files, which are the first tenth of the raw ones
        (plain_or_packed("hepmass/1000_train.csv"), plain_or_packed("hepmass/1000_test.csv")),
        f"https://archive.ics.uci.edu/dataset/347, or {ARCHIVE}",
        _read,
    ),
)
