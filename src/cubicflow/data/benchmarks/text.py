"""Numbers out of text files, plain or compressed, without reading the text into memory at once."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO, cast

import numpy as np
from numpy.typing import NDArray


def open_text(path: Path) -> TextIO:
    """Open ``path`` as text, through gzip or xz if its name says so."""
    if path.suffix == ".gz":
        return cast("TextIO", gzip.open(path, "rt", encoding="ascii"))
    if path.suffix == ".xz":
        return cast("TextIO", lzma.open(path, "rt", encoding="ascii"))
    return path.open(encoding="ascii")


def parse_numbers(
    lines: Iterable[str], source: Path, *, delimiter: str | None = None, columns: Sequence[int] | None = None
) -> NDArray[np.float64]:
    """Rows of numbers as float64, correctly rounded; ``delimiter=None`` is any white space."""
    nonempty = (line for line in lines if not line.isspace())
    first = next(nonempty, None)
    if first is None:  # np.loadtxt warns about no rows; here it is an error
        raise ValueError(f"{source} holds no rows of numbers; fetch it again")

    def with_first() -> Iterable[str]:
        yield first
        yield from nonempty

    try:
        return np.loadtxt(with_first(), dtype=np.float64, delimiter=delimiter, usecols=columns, ndmin=2, comments=None)
    except (ValueError, EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"{source} is damaged: {error}. Fetch it again") from error
