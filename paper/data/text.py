"""Parsing of numbers from text files, plain or compressed, without loading all text into memory."""

from __future__ import annotations

import gzip
import itertools
import lzma
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray


def plain_or_packed(name: str) -> tuple[str, ...]:
    """Return the names under which :func:`open_text` can read a file."""
    return name, f"{name}.gz", f"{name}.xz"


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open ``path`` as text; a name with ``.gz`` or ``.xz`` is unpacked. Raises ValueError for a damaged file."""
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        with opener(path, "rt", encoding="ascii") as file:
            yield file
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}. Download it again") from error


def parse_numbers(
    lines: Iterable[str], source: Path, *, delimiter: str | None = None, columns: Sequence[int] | None = None
) -> NDArray[np.float64]:
    """Parse rows of numbers as float64, correctly rounded. ``delimiter=None`` means any white space."""
    nonempty = (line for line in lines if not line.isspace())
    first = next(nonempty, None)
    if first is None:  # np.loadtxt would only warn
        raise ValueError(f"{source} has no rows of numbers; download it again")
    rows = itertools.chain([first], nonempty)
    try:
        return np.loadtxt(rows, dtype=np.float64, delimiter=delimiter, usecols=columns, ndmin=2, comments=None)
    except ValueError as error:
        raise ValueError(f"{source} is damaged: {error}. Download it again") from error
