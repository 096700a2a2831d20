"""Numbers out of text files, plain or compressed, without reading the text into memory at once."""

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
    """The names under which :func:`open_text` takes a file."""
    return name, f"{name}.gz", f"{name}.xz"


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """``path`` as text, through gzip or xz if its name says so. What cannot be unpacked is named."""
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        with opener(path, "rt", encoding="ascii") as file:
            yield file
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}. Fetch it again") from error


def parse_numbers(
    lines: Iterable[str], source: Path, *, delimiter: str | None = None, columns: Sequence[int] | None = None
) -> NDArray[np.float64]:
    """Rows of numbers as float64, correctly rounded; ``delimiter=None`` is any white space."""
    nonempty = (line for line in lines if not line.isspace())
    first = next(nonempty, None)
    if first is None:  # np.loadtxt warns about no rows; here it is an error
        raise ValueError(f"{source} holds no rows of numbers; fetch it again")
    rows = itertools.chain([first], nonempty)
    try:
        return np.loadtxt(rows, dtype=np.float64, delimiter=delimiter, usecols=columns, ndmin=2, comments=None)
    except ValueError as error:
        raise ValueError(f"{source} is damaged: {error}. Fetch it again") from error
