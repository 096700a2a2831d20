"""Files: written atomically, never through a link, never read from a pipe or a device; locks of folders.

An atomic write leaves a complete file or the old one. A folder from elsewhere may contain links and pipes.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

from cubicflow.advice import AdvisedError

CACHE_VARIABLE = "CUBICFLOW_CACHE"
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}", re.DOTALL)
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # errors of a file system that cannot lock files


class NotPlainError(ValueError):
    """A path is not a plain file. The message gives the path, what was found there, and what to do."""


class InUseError(RuntimeError):
    """Another process holds a lock. The message names that process."""


class OutputError(AdvisedError, ValueError):
    """A file cannot be written. The message says what to do."""


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
    replaced, all paths get their old files back. Old and new files never stand beside each other: if there are several
    files, all old files get temporary names before the first new file gets its name. So a process that is killed in
    between leaves paths without a file.

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
    old: dict[Path, Path] = {}  # temporary names of old files by path

    @contextmanager
    def new_file(path: Path) -> Iterator[BinaryIO]:
        temporary = path.with_name(temporary_name(path.name))
        with temporary.open("x+b") as file:
            new[path] = temporary
            yield file
            file.flush()
            os.fsync(file.fileno())  # without fsync, the renamed file could be empty after a power cut

    try:
        yield new_file
        if len(new) > 1:  # a single rename replaces its file or fails
            for path in filter(os.path.lexists, new):
                if path.is_dir():  # a folder could be renamed
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))  # noqa: TRY301
                old[path] = path.with_name(temporary_name(path.name))
                path.rename(old[path])
        for path, temporary in new.items():
            temporary.replace(path)
    except BaseException:
        for path, temporary in new.items():
            if path in old:
                with suppress(OSError):  # an old file that cannot be restored keeps its temporary name
                    old[path].rename(path)
            elif len(new) > 1 and not temporary.exists():
                path.unlink(missing_ok=True)
        raise
    else:
        for aside in old.values():
            aside.unlink(missing_ok=True)
        for folder in {path.parent for path in new}:
            sync_folder(folder)
    finally:
        for temporary in new.values():
            temporary.unlink(missing_ok=True)


def temporary_name(name: str) -> str:
    """Return a new name for a file while it is written."""
    return f".{name}.{secrets.token_hex(8)}"


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


def named_when_complete(name: str) -> str | None:
    """Return the name that a temporary file gets when it is complete, or None for other files.

    >>> named_when_complete(".config.json.0123456789abcdef"), named_when_complete(".config.json.bak")
    ('config.json', None)
    """
    found = TEMPORARY.fullmatch(name)
    return found and found[1]


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step. A reader sees either the old content or the new content."""
    with replacing(path) as file:
        file.write(content)


def check_free(path: Path, *, overwrite: bool) -> None:
    """Raise OutputError, before any work is done, if a file cannot be written at a path.

    >>> check_free(Path("no/such/folder/rows.csv"), overwrite=False)
    Traceback (most recent call last):
    ...
    cubicflow.files.OutputError: no/such/folder/rows.csv: there is no folder no/such/folder; create it first
    """
    if path.is_dir():
        raise OutputError(f"{path} is a folder; give the name of a file")
    if path.exists() and not overwrite:
        raise OutputError(f"{path} exists already; choose another name, or replace it", overwrite=True)
    if not path.parent.is_dir():
        raise OutputError(f"{path}: there is no folder {path.parent}; create it first")
    if not os.access(path.parent, os.W_OK):
        raise OutputError(f"{path} cannot be written: its folder is not writable; choose another folder")


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
    cubicflow.files.NotPlainError: /dev/zero is not a plain file
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise NotPlainError(f"{path} is not a plain file")
    if most_bytes is not None and found.st_size > most_bytes:
        raise NotPlainError(f"{path} has {found.st_size:,} bytes, more than the {most_bytes:,} allowed for this file")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Create a file that holds the name of this process, and lock it inside the block. Then remove it.

    The system releases the lock when the process dies. On a file system that cannot lock files, nothing is locked.

    Raises InUseError if another process holds the lock, and NotPlainError if the path is not a plain file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "lock")
    ...     with locked(path):
    ...         try:
    ...             with locked(path):
    ...                 pass
    ...         except InUseError as error:
    ...             str(error).startswith(f"process {os.getpid()} on ")
    True
    """
    with os.fdopen(open_plain(path, os.O_RDWR), "r+", encoding="utf-8", errors="replace") as file:
        if not _is_locked(file, path):  # another process holds the lock, or has just released it and removed its file
            raise InUseError(file.read().strip() or "another process")
        file.truncate(0)
        # Not through the buffer: on a full disk, closing the file would write again and hide this error.
        os.pwrite(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _is_locked(file: TextIO, path: Path) -> bool:
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


def cache_folder() -> Path:
    """Return the folder of files that were downloaded or computed once: that in ``CUBICFLOW_CACHE``, else ``cubicflow``
    in ``XDG_CACHE_HOME`` or ``~/.cache``."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "cubicflow"
