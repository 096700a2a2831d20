"""Files that are complete under their own name, or not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new binary file, to write and to read, that takes the name ``path`` when the block ends. If the block raises,
    the new file is removed, and what was at ``path`` stays.

    Until then the file lies in the same folder, where it can be renamed in one step, as ``.NAME.`` and random digits:
    writers in several processes or threads do not meet. ``file.name`` is its path.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "numbers"
    ...     with replacing(path) as file:
    ...         there_meanwhile = file.write(b"1 2 3") and path.exists()
    ...     there_meanwhile, path.read_bytes()
    (False, b'1 2 3')
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # or, after a power cut, the new name might stand over an empty file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step: whoever reads it sees the old content or the new, whatever happens in between."""
    with replacing(path) as file:
        file.write(content)
