"""Atomic file writes: a path holds a complete file or does not change."""

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
    """Open a new binary file for writing and reading, and rename it to ``path`` when the block ends.

    If the block raises, the new file is removed, and ``path`` does not change. Inside the block the file is named
    ``.NAME.`` plus random digits. The file is in the folder of ``path``, because a rename is atomic only within one
    file system. Several processes or threads can write the same path: their temporary names differ. ``file.name`` is
    the temporary path.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "numbers"
    ...     with replacing(path) as file:
    ...         exists_inside = file.write(b"1 2 3") and path.exists()
    ...     exists_inside, path.read_bytes()
    (False, b'1 2 3')
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # without fsync, the renamed file could be empty after a power cut
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, so that a power cut does not undo a rename.

    Some file systems cannot sync a folder. There the error is ignored.
    """
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_leftover(name: str, of: Iterable[str]) -> bool:
    """Return whether ``name`` is the temporary file of one of the files ``of``, left behind by a killed process.

    >>> is_leftover(".config.json.0123456789abcdef", ["config.json"]), is_leftover(".config.json.bak", ["config.json"])
    (True, False)
    """
    return any(re.fullmatch(rf"\.{re.escape(known)}\.[0-9a-f]{{16}}", name) for known in of)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step. A reader sees either the old content or the new content."""
    with replacing(path) as file:
        file.write(content)
