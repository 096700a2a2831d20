"""What the five tables share: the splits as a value, their published sizes, and how their provenance is decided.

A table is built in float64 and cast to float32 at the end, in the order of operations of the code that introduced
these benchmarks (Papamakarios et al., "Masked Autoregressive Flow", 2017), so that arrays agree with published ones.
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
    """Rows of each split, and columns."""

    train: int
    validation: int
    test: int
    features: int


# As published. Checksums of most files are not known to us, so these counts are what a loaded table is checked by.
PUBLISHED = {
    "power": Size(1_659_917, 184_435, 204_928, 6),
    "gas": Size(852_174, 94_685, 105_206, 8),
    "hepmass": Size(315_123, 35_013, 174_987, 21),
    "miniboone": Size(29_556, 3_284, 3_648, 43),
    "bsds300": Size(1_000_000, 50_000, 250_000, 63),
}


class Splits(NamedTuple):
    train: Rows | Rows32
    validation: Rows | Rows32
    test: Rows | Rows32


@dataclass(frozen=True, eq=False)
class Benchmark:
    """One benchmark table, split and normalised: float32 arrays of shape (rows, features).

    ``provenance`` says what a result on it may be compared with: ``"whole"``, the published table, row for row;
    ``"redrawn"``, the published recipe with fresh randomness, same sizes and distribution; ``"partial"``, only some of
    the rows. ``note`` says it in a sentence. ``weights`` (one per training row, or None for equal weights) turns an
    unfair sample of training rows back into a fair one: multiply each row's log likelihood by its weight.

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
        return int(self.train.shape[1])


Reader = Callable[[tuple[Path, ...], int], Benchmark]  # of the files found, and the seed of whatever is drawn


@dataclass(frozen=True)
class Form:
    """One way a table lies on disk.

    ``files`` lists what it needs, each as its accepted names under the data folder, best first. A form with a
    ``refusal`` is never read unless it is asked for by name, and the refusal says why.

    >>> from cubicflow.data.benchmarks import BENCHMARKS
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
    """Cast the splits to float32, check them against the published sizes, and say what they are.

    ``source`` names the file; ``redrawn``, where given, says what was drawn afresh.
    """
    published = PUBLISHED[name]
    train, validation, test = (np.ascontiguousarray(rows, dtype=np.float32) for rows in splits)
    for split, rows in zip(Splits._fields, (train, validation, test), strict=True):
        if rows.ndim != 2 or rows.shape[1] != train.shape[1]:
            raise ValueError(f"{source}: {split} has shape {rows.shape}, expected (rows, {train.shape[-1]})")
        if not len(rows):
            raise ValueError(f"{source}: {split} has no rows, so there is nothing to fit or to score")
        if not np.isfinite(rows).all():
            raise ValueError(f"{source}: {split} holds NaN or infinite values, so the file is damaged; fetch it again")
    found = Size(len(train), len(validation), len(test), train.shape[1])
    if any(count > limit for count, limit in zip(found[:3], published[:3], strict=True)):
        raise ValueError(
            f"{source}: {_rows(found)} rows are more than the published {_rows(published)}, so this is not the file "
            f"that {name.upper()} is made from"
        )
    provenance: Provenance = "partial"
    if parts := [split for split, a, b in zip(Splits._fields, found, published, strict=False) if a != b]:
        note = f"Partial {' and '.join(parts)}: {_rows(found)} of {_rows(published)} published rows, from {source}"
        note += "; training rows carry weights." if weights is not None else "."
    elif found.features != published.features:
        raise ValueError(
            f"{source}: {found.features} columns stay, {published.features} were published; the file is damaged or "
            "another version"
        )
    elif redrawn is not None:
        provenance, note = "redrawn", f"From {source}: {redrawn}."
    else:
        provenance, note = "whole", f"All {_rows(published)} published rows, from {source}."
    return Benchmark(name, train, validation, test, weights, provenance, note)


def split_last_tenths(rows: Rows, source: str) -> Splits:
    """Test is the last tenth, validation the last tenth of the rest, each rounded down."""
    if len(rows) < 20:  # below that a tenth of a part rounds to nothing
        raise ValueError(f"{source}: {len(rows)} rows are left, at least 20 are needed for three splits")
    test = int(0.1 * len(rows))
    validation = int(0.1 * (len(rows) - test))
    return Splits(rows[: -test - validation], rows[-test - validation : -test], rows[-test:])


def split_and_normalise(rows: Rows, source: str) -> Splits:
    """Split without shuffling; then zero mean and unit population standard deviation over train and validation."""
    splits = split_last_tenths(rows, source)
    fitted = np.concatenate([splits.train, splits.validation])
    mean, std = fitted.mean(axis=0), fitted.std(axis=0)
    return Splits(*((rows - mean) / std for rows in splits))


def repeats_its_smallest(rows: Rows) -> NDArray[np.bool_]:
    """Which columns hold their smallest value more than 5 times: the mark of a column that is not continuous."""
    return np.asarray((rows == rows.min(axis=0)).sum(axis=0) > 5)


def load_array(path: Path, dimensions: int = 2) -> NDArray[np.generic]:
    """A .npy file of numbers; arrays of Python objects, which could run code, are refused."""
    try:
        with path.open("rb") as file:  # numpy leaves what it cannot read open
            array: NDArray[np.generic] = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a whole .npy file of numbers ({error}); fetch it again") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} is an archive of arrays under another name, expected a .npy file")  # noqa: TRY004
    if array.ndim != dimensions or array.dtype.kind not in "fiu":
        raise ValueError(
            f"{path} holds {array.dtype} of shape {array.shape}, expected numbers in {dimensions} dimension(s)"
        )
    return array


def load_rows(path: Path) -> Rows:
    """The rows of a .npy file in float64."""
    return load_array(path).astype(np.float64)


def one_file(
    name: str, prepare: Callable[[Rows, str], Splits], read: Callable[[Path], Rows] = load_rows, *, prefix: str = ""
) -> Reader:
    """How to read a table whose rows lie in one file, which notes call by its name after ``prefix``."""

    def read_form(paths: tuple[Path, ...], _seed: int) -> Benchmark:
        (path,) = paths
        return make_benchmark(name, prepare(read(path), str(path)), source=prefix + path.name)

    return read_form


def _rows(size: Size) -> str:
    return " / ".join(f"{count:,}" for count in size[:3])
