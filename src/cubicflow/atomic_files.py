"""Atomic file writes: a path holds a complete file or does not change. Several files are replaced together."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
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
    with replacing_together() as new_file, new_file(path) as file:
        yield file


@contextmanager
def replacing_together() -> Iterator[Callable[[Path], AbstractContextManager[BinaryIO]]]:
    """Replace several files, or no file. Yields a function that opens a new file for a path, as in :func:`replacing`.

    The new files are complete before the first path changes. If the block raises, no path changes. If a path cannot be
    replaced, the paths before it get their old files back. A process that is killed between two renames leaves the
    paths before it with new files, and the paths after it with old files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = [Path(folder, name) for name in "ab"]
    ...     with replacing_together() as new_file:
    ...         for path in paths:
    ...             with new_file(path) as file:
    ...                 file.write(b"1 2 3") and [path.exists() for path in paths]
    ...     [path.exists() for path in paths]
    [False, False]
    [False, False]
    [True, True]
    """
    new: dict[Path, Path] = {}  # temporary files by path
    old: dict[Path, Path | None] = {}  # second names of the old files, None for a path without a file

    @contextmanager
    def new_file(path: Path) -> Iterator[BinaryIO]:
        new[path] = _temporary(path)
        with new[path].open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # without fsync, the renamed file could be empty after a power cut

    try:
        yield new_file
        try:
            for path, temporary in new.items():
                if len(new) > 1:  # a single rename replaces its file or fails
                    old[path] = _second_name(path)
                temporary.replace(path)
        except BaseException:
            for path, kept in old.items():
                replaced = not new[path].exists()
                if kept is None and replaced:
                    path.unlink(missing_ok=True)
                elif kept is not None and replaced:
                    kept.replace(path)
                elif kept is not None:
                    kept.unlink()
            raise
        for kept in filter(None, old.values()):
            kept.unlink(missing_ok=True)
        for folder in {path.parent for path in new}:
            sync_folder(folder)
    finally:
        for temporary in new.values():
            temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")


def _second_name(path: Path) -> Path | None:
    """Give the file at a path a second name, and return it; return None if there is no file."""
    if not os.path.lexists(path):
        return None
    second = _temporary(path)
    try:
        os.link(path, second, follow_symlinks=False)
    except OSError:  # a file system without hard links; copying a folder raises
        try:
            shutil.copy2(path, second, follow_symlinks=False)
        except BaseException:
            second.unlink(missing_ok=True)
            raise
    return second


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
