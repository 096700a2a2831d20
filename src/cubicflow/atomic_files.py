"""Files that are complete under their own name, or not there."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
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
        keep_names(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def keep_names(folder: Path) -> None:
    """Write down which names a folder has: a rename that was not written down is undone by a power cut. Some
    filesystems cannot; the rename stays as atomic as it is there."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_leftover(name: str, of: Iterable[str]) -> bool:
    """Whether a file is what a killed process left of one that it was writing.

    >>> is_leftover(".config.json.0123456789abcdef", ["config.json"]), is_leftover(".config.json.bak", ["config.json"])
    (True, False)
    """
    return any(re.fullmatch(rf"\.{re.escape(known)}\.[0-9a-f]{{16}}", name) for known in of)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step: whoever reads it sees the old content or the new, whatever happens in between."""
    with replacing(path) as file:
        file.write(content)
