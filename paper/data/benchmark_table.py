"""Common code of the five benchmark tables: splits, published sizes, and the provenance of a loaded table.

A table is built in float64 and cast to float32 at the end. The order of operations is that of the code that introduced
these benchmarks (Papamakarios et al., "Masked Autoregressive Flow", 2017), so that the arrays equal the published ones.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
Rows32 = NDArray[np.float32]
Provenance = Literal["whole", "redrawn", "partial"]

ARCHIVE = "data.tar.gz of https://zenodo.org/record/1161203"  # the published arrays


class Size(NamedTuple):
    """Number of rows of each split, and number of columns."""

    train: int
    validation: int
    test: int
    features: int


# Published sizes. Most files have no published checksum, so a loaded table is checked against these counts.
PUBLISHED = {
    "power": Size(1_659_917, 184_435, 204_928, 6),
    "gas": Size(852_174, 94_685, 105_206, 8),
    "hepmass": Size(315_123, 35_013, 174_987, 21),
    "miniboone": Size(29_556, 3_284, 3_648, 43),
    "bsds300": Size(1_000_000, 50_000, 250_000, 63),
}


class Splits(NamedTuple):
    """Rows of the training, validation and test split."""

    train: Rows | Rows32
    validation: Rows | Rows32
    test: Rows | Rows32


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Benchmark table, split and normalised: float32 arrays of shape (rows, features).

    Attributes:
        name: name of the table.
        train, validation, test: the rows of each split.
        weights: one weight for each training row, or None for equal weights. Weights correct a training set that is a
            biased sample: multiply each row's log likelihood by its weight.
        provenance: ``"whole"`` for the published table, row for row; ``"redrawn"`` for the published recipe with other
            random numbers, with the same sizes and distribution; ``"partial"`` for only some of the rows.
        note: the provenance in a sentence.

    >>> rows = np.zeros((20, 6), np.float32)
    >>> Benchmark("power", rows, rows[:2], rows[:2], None, "partial", "The first rows.").features
    6
    """

    name: str
    train: Rows32
    validation: Rows32
    test: Rows32
    weights: NDArray[np.float32] | None
    provenance: Provenance
    note: str

    @property
    def features(self) -> int:
        """Number of columns."""
        return int(self.train.shape[1])


Reader = Callable[[tuple[Path, ...], int], Benchmark]  # (paths of the files, seed) -> table


@dataclass(frozen=True)
class Form:
    """Form in which a table's files can be stored.

    Attributes:
        name: name of the form.
        files: the files that the form needs, each as a tuple of accepted names under the data folder, best first.
        origin: where the files come from.
        read: function that reads the table from the files.
        refusal: the reason why the form is read only if the caller requests it by name, or None.

    >>> from paper.data import BENCHMARKS
    >>> [form.name for form in BENCHMARKS["power"]]
    ['published', 'raw']
    """

    name: str
    files: tuple[tuple[str, ...], ...]
    origin: str
    read: Reader
    refusal: str | None = None


def make_benchmark(
    name: str,
    splits: Splits,
    *,
    source: str,
    redrawn: str | None = None,
    weights: NDArray[np.float32] | None = None,
) -> Benchmark:
    """Cast the splits to float32, check them against the published sizes, and return the table with its provenance.

    ``source`` is the name of the file for messages. ``redrawn`` is a phrase that describes a redrawn table, or None.
    """
    published = PUBLISHED[name]
    train, validation, test = (np.ascontiguousarray(rows, dtype=np.float32) for rows in splits)
    for split, rows in zip(Splits._fields, (train, validation, test), strict=True):
        if rows.ndim != 2 or rows.shape[1] != train.shape[1]:
            raise ValueError(
                f"{source}: {split} has shape {rows.shape}, expected (rows, {train.shape[-1]}); download it again"
            )
        if not len(rows):
            raise ValueError(f"{source}: {split} has no rows; download the file again")
        if not np.isfinite(rows).all():
            raise ValueError(f"{source}: {split} has NaN or infinite values: the file is damaged; download it again")
    found = Size(len(train), len(validation), len(test), train.shape[1])
    if any(count > limit for count, limit in zip(found[:3], published[:3], strict=True)):
        raise ValueError(
            f"{source}: {_rows(found)} rows are more than the published {_rows(published)}, so this is not the "
            f"original file of {name.upper()}; download it again"
        )
    provenance: Provenance = "partial"
    if parts := [split for split, a, b in zip(Splits._fields, found, published, strict=False) if a != b]:
        note = f"Partial {' and '.join(parts)}: {_rows(found)} of {_rows(published)} published rows, from {source}"
        note += "; training rows carry weights." if weights is not None else "."
    elif found.features != published.features:
        raise ValueError(
            f"{source}: {found.features} columns remain, expected {published.features}: the file is damaged or of "
            "another version; download it again"
        )
    elif redrawn is not None:
        provenance, note = "redrawn", f"From {source}: {redrawn}."
    else:
        provenance, note = "whole", f"All {_rows(published)} published rows, from {source}."
    return Benchmark(name, train, validation, test, weights, provenance, note)


def split_last_tenths(rows: Rows, source: str) -> Splits:
    """Split rows in order: test is the last tenth, validation the last tenth of the rest, each rounded down."""
    if len(rows) < 20:  # with fewer rows, the validation split would round to 0 rows
        raise ValueError(
            f"{source}: {len(rows)} rows remain, but three splits need at least 20; download the file again"
        )
    test = int(0.1 * len(rows))
    validation = int(0.1 * (len(rows) - test))
    return Splits(rows[: -test - validation], rows[-test - validation : -test], rows[-test:])


def split_and_normalise(rows: Rows, source: str) -> Splits:
    """Split without shuffling, then normalise by the mean and population std of train and validation together."""
    splits = split_last_tenths(rows, source)
    fitted = np.concatenate([splits.train, splits.validation])
    mean, std = fitted.mean(axis=0), fitted.std(axis=0)
    return Splits(*((rows - mean) / std for rows in splits))


def discrete_columns(rows: Rows) -> NDArray[np.bool_]:
    """Return which columns are discrete: those that contain their smallest value more than 5 times."""
    return np.asarray((rows == rows.min(axis=0)).sum(axis=0) > 5)


def load_array(path: Path, dimensions: int = 2) -> NDArray[np.generic]:
    """Read a .npy file of numbers. Arrays of Python objects could run code, so they raise ValueError."""
    try:
        with path.open("rb") as file:  # np.load does not close a file that it cannot read
            array: NDArray[np.generic] = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a complete .npy file of numbers ({error}); download it again") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} is an .npz archive, expected a .npy file; download it again")  # noqa: TRY004
    if array.ndim != dimensions or array.dtype.kind not in "fiu":
        raise ValueError(
            f"{path} has dtype {array.dtype} and shape {array.shape}, expected numbers in {dimensions} dimension(s); "
            "download it again"
        )
    return array


def load_rows(path: Path) -> Rows:
    """Return the rows of a .npy file in float64."""
    return load_array(path).astype(np.float64)


def single_file_reader(
    name: str, prepare: Callable[[Rows, str], Splits], read: Callable[[Path], Rows] = load_rows, *, prefix: str = ""
) -> Reader:
    """Return a reader for a table in a single file. The table's note gives the file's name after ``prefix``."""

    def read_form(paths: tuple[Path, ...], _seed: int) -> Benchmark:
        (path,) = paths
        return make_benchmark(name, prepare(read(path), str(path)), source=prefix + path.name)

    return read_form


def _rows(size: Size) -> str:
    return " / ".join(f"{count:,}" for count in size[:3])
