"""Files in a folder that somebody else may have filled: no link is written through, no pipe or device is read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


class NotPlainError(ValueError):
    """A file that is not what it should be: its path, what was found there, and what to do."""


def open_own(path: Path, flags: int) -> int:
    """A descriptor of a file that is ours to write, made where there is none. What stands under its name may be neither
    a link, in either sense, nor a pipe or a device: the content of another file would change.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "log")
    ...     path.symlink_to("elsewhere")
    ...     try:
    ...         open_own(path, os.O_WRONLY)
    ...     except NotPlainError as error:
    ...         print(str(error).removeprefix(folder))
    /log is a link to elsewhere, and what it points to would be overwritten; remove the link
    """
    refuse_link(path)
    try:
        # Without O_NONBLOCK a pipe would be waited for.
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link since the look above; a pipe that nobody reads
            raise NotPlainError(f"{path} is not a plain file; remove it") from None
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        what = "is not a plain file" if not stat.S_ISREG(found.st_mode) else "is another file as well (a hard link)"
        raise NotPlainError(f"{path} {what}; remove it")
    return descriptor


def refuse_link(path: Path) -> None:
    """Refuse a link where a file or a folder of ours should be."""
    if path.is_symlink():
        raise NotPlainError(
            f"{path} is a link to {path.readlink()}, and what it points to would be overwritten; remove the link"
        )


def check_plain(path: Path, most_bytes: int | None = None) -> None:
    """Refuse what is there but cannot be read like a file, or is larger than anything that was written there.

    >>> check_plain(Path("/dev/zero"))
    Traceback (most recent call last):
    ...
    cubicflow.plain_files.NotPlainError: /dev/zero is not a plain file
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise NotPlainError(f"{path} is not a plain file")
    if most_bytes is not None and found.st_size > most_bytes:
        raise NotPlainError(f"{path} has {found.st_size:,} bytes; at most {most_bytes:,} are read of such a file")
