"""GAS: 16 chemical sensors in mixtures of ethylene and carbon monoxide; 8 columns remain without correlated columns.

The published pickle is a quarter of UCI's 4,208,261 rows, drawn and shuffled with a seed that was never recorded. So
the raw text only allows a *redrawn* table: a quarter of the rows in random order, then the same recipe. The rows in
their original order would be a different task: the test split would be the last hour of the experiment.

A pickle can run any code when it is read, and this pickle has no published checksum. It is read only with
``form="pickle"``. ``gas/data.npy`` holds the same rows as plain numbers; it is safe and is read by default.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paper.data.benchmark_table import (
    ARCHIVE,
    Benchmark,
    Form,
    Rows,
    Splits,
    make_benchmark,
    single_file_reader,
    split_last_tenths,
)
from paper.data.text import open_text, parse_numbers, plain_or_packed

SENSORS = 16
FRACTION = 0.25


def read_text(path: Path) -> Rows:
    """Return the readings of the 16 sensors. Time and concentrations, the first three columns, are left out."""
    with open_text(path) as file:
        header = file.readline()
        if not header.startswith("Time"):
            raise ValueError(f"{path} is not ethylene_CO.txt: its first line is {header[:80]!r}; download it again")
        return parse_numbers(file, path, columns=range(3, 3 + SENSORS))


def read_pickle(path: Path) -> Rows:
    """Return the rows of the published pickle. Only for a file that you trust: unpickling can run code."""
    import pandas as pd

    try:
        frame = pd.read_pickle(path)  # noqa: S301  the caller requested it by form="pickle"
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise ValueError(
            f"this version of pandas cannot read {path}, which an old version wrote ({error}). Convert the file with "
            f"pandas 1.5 in a separate environment: {_CONVERT}"
        ) from error
    if not isinstance(frame, pd.DataFrame) or not {"Meth", "Eth", "Time"} <= set(frame.columns):
        raise ValueError(f"{path} is not a pandas table with the columns Meth, Eth and Time; download it again")
    return np.asarray(frame.drop(columns=["Meth", "Eth", "Time"]), dtype=np.float64)


def draw(rows: Rows, seed: int) -> Rows:
    """Draw a quarter of the rows, in random order."""
    # RandomState's streams never change; Generator's may change between versions of NumPy.
    order = np.random.RandomState(seed).permutation(len(rows))
    return rows[order[: round(FRACTION * len(rows))]]


def uncorrelated(rows: Rows) -> list[int]:
    """Return the columns that remain when correlated columns are dropped.

    As long as some column has a correlation above 0.98 with another, the first such column is dropped.
    """
    high: NDArray[np.bool_] = np.asarray(np.corrcoef(rows, rowvar=False) > 0.98)
    kept = list(range(rows.shape[1]))
    while crowded := [i for i in kept if high[i, kept].sum() > 1]:
        kept.remove(crowded[0])
    return kept


def prepare(rows: Rows, source: str) -> Splits:
    """Drop correlated columns, normalise by mean and sample std of all rows, split without shuffling."""
    if rows.shape[1] != SENSORS:
        raise ValueError(f"{source} has {rows.shape[1]} sensor columns, expected {SENSORS}; download the file again")
    rows = rows[:, uncorrelated(rows)]
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0, ddof=1)
    return split_last_tenths(rows, source)


def _read_raw(paths: tuple[Path, ...], seed: int) -> Benchmark:
    splits = prepare(draw(read_text(paths[0]), seed), str(paths[0]))
    redrawn = f"a quarter of the rows, drawn with seed {seed}, because the seed of the published draw is unknown"
    return make_benchmark("gas", splits, source=paths[0].name, redrawn=redrawn)


_CONVERT = (
    "python -c \"import numpy, pandas; numpy.save('gas/data.npy', "
    "pandas.read_pickle('gas/ethylene_CO.pickle').drop(columns=['Meth', 'Eth', 'Time']).to_numpy())\""
)

FORMS = (
    Form(
        "published",
        (("gas/data.npy",),),
        f"gas/ethylene_CO.pickle in {ARCHIVE}, converted in the data folder: {_CONVERT}",
        single_file_reader("gas", prepare, prefix="gas/"),
    ),
    Form("raw", (plain_or_packed("gas/ethylene_CO.txt"),), "https://archive.ics.uci.edu/dataset/322", _read_raw),
    Form(
        "pickle",
        (("gas/ethylene_CO.pickle",),),
        ARCHIVE,
        single_file_reader("gas", prepare, read_pickle),
        refusal=(
            "a pickle can run any code when it is opened, so it is not read by default. If you trust the file, pass "
            'form="pickle". Otherwise convert it to plain numbers in a sandbox; run this in the data folder: '
            f"{_CONVERT}"
        ),
    ),
)
