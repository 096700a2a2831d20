"""Safe access to files in an untrusted folder: never write through a link, never read a pipe or a device.

The lock of a folder is such a file, too.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path
from typing import TextIO

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # errors of a file system that cannot lock files


class NotPlainError(ValueError):
    """A path is not a plain file. The message gives the path, what was found there, and what to do."""


class InUseError(RuntimeError):
    """Another process holds a lock. The message names that process."""


def open_plain(path: Path, flags: int) -> int:
    """Open a plain file for writing, create it if it is missing, and return its descriptor.

    Raises NotPlainError for a symbolic link, a file with several hard links, a pipe or a device: writing would change
    the content of another file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "log")
    ...     path.symlink_to("elsewhere")
    ...     try:
    ...         open_plain(path, os.O_WRONLY)
    ...     except NotPlainError as error:
    ...         print(str(error).removeprefix(folder))
    /log is a link to elsewhere, and writing would change that file; remove the link
    """
    refuse_link(path)
    try:
        # O_NONBLOCK: opening a pipe without a reader would block.
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link made after refuse_link; a pipe without a reader
            raise NotPlainError(f"{path} is not a plain file; remove it") from None
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        problem = "has another name as well (a hard link)" if stat.S_ISREG(found.st_mode) else "is not a plain file"
        raise NotPlainError(f"{path} {problem}; remove this file")
    return descriptor


def refuse_link(path: Path) -> None:
    """Raise NotPlainError if ``path`` is a symbolic link."""
    if path.is_symlink():
        raise NotPlainError(
            f"{path} is a link to {path.readlink()}, and writing would change that file; remove the link"
        )


def check_plain(path: Path, most_bytes: int | None = None) -> None:
    """Raise NotPlainError unless ``path`` is a plain file of at most ``most_bytes`` bytes.

    >>> check_plain(Path("/dev/zero"))
    Traceback (most recent call last):
    ...
    cubicflow.plain_files.NotPlainError: /dev/zero is not a plain file
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise NotPlainError(f"{path} is not a plain file")
    if most_bytes is not None and found.st_size > most_bytes:
        raise NotPlainError(f"{path} has {found.st_size:,} bytes, more than the {most_bytes:,} allowed for this file")


def take_lock(path: Path) -> TextIO:
    """Create a file, lock it for this process, and return it, open. It contains the name of this process.

    The system releases the lock when the file is closed or the process dies. The caller removes the file before it
    closes the file. On a file system that cannot lock files, the file is not locked.

    Raises InUseError if another process holds the lock, and NotPlainError if the path is not a plain file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "lock")
    ...     with take_lock(path):
    ...         try:
    ...             take_lock(path)
    ...         except InUseError as error:
    ...             str(error).startswith(f"process {os.getpid()} on ")
    True
    """
    file = os.fdopen(open_plain(path, os.O_RDWR), "r+", encoding="utf-8", errors="replace")
    try:
        if not _locked(file, path):  # another process holds the lock, or has just released it and removed its file
            raise InUseError(file.read().strip() or "another process")  # noqa: TRY301 - closes the file first
        file.truncate(0)
        # Not through the buffer: on a full disk, closing the file would write again and hide this error.
        os.pwrite(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except BaseException:
        file.close()
        raise
    return file


def _locked(file: TextIO, path: Path) -> bool:
    """Lock a file, and return whether this process holds the lock, and the file still has its name."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))
