"""A folder that a process writes over time, such as that of a run: who may write, and how a killed process is followed.

The *marker* is the file that says what the folder holds, such as config.json of a run. A process can be killed at any
moment. Three rules let the next process resume its work or overwrite it:

- Only the process that holds the lock writes. An object store has no lock. There the marker is created only if absent.
- A file gets its name when it is complete. Until then its name is that of a temporary file, which belongs to nobody
  else, so the next process removes it.
- The marker is the first file of its folder, and the last one to be removed. A folder with other files and without a
  marker belongs to somebody else.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol

from cubicflow.files import InUseError, check_plain, locked, named_when_complete, write_atomically


class Files(Protocol):
    """The files of one folder, on this machine or in a store. Each method raises the errors of its file system."""

    def make(self) -> None:
        """Make the folder if it does not exist."""

    def names(self) -> dict[str, bool]:
        """Return the names in the folder, sorted, and for each whether it is a folder. Return none if it is missing."""

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading. Raises NotPlainError for a pipe or a device."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a new file, and return whether it was this call that created it."""

    def remove(self, names: Sequence[str]) -> None:
        """Remove files, in this order. A file that does not exist is ignored."""

    def locked(self, name: str) -> AbstractContextManager[object]:
        """Hold a lock, which is released when the process dies. Raises InUseError if another process holds it."""


class LocalFiles:
    """The files of a folder on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def names(self) -> dict[str, bool]:
        if not os.path.lexists(self.path):
            return {}
        with os.scandir(self.path) as entries:
            return dict(sorted((entry.name, entry.is_dir()) for entry in entries))

    def open(self, name: str) -> IO[bytes]:
        check_plain(self.path / name)  # opening a pipe without a writer would block
        return (self.path / name).open("rb")

    def write(self, name: str, content: bytes) -> None:
        write_atomically(self.path / name, content)

    def create(self, name: str, content: bytes) -> bool:
        write_atomically(self.path / name, content)  # the lock keeps others away
        return True

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def locked(self, name: str) -> AbstractContextManager[None]:
        return locked(self.path / name)


class OwnedFolder(ABC):
    """Base class of folders with a marker and files that belong to it.

    A subclass names the files, and says what its errors are. Its work happens inside :meth:`opened`.

    Attributes:
        what: what the folder holds, for messages.
        marker: the name of the file that says what is in the folder.
        lock: the name of the lock.
        beside: names that a folder may have before the work begins.
        shared: whether other files may stand beside ours. If not, a folder with other files is not overwritten.
        files: the files of the folder.
    """

    what: ClassVar[str]
    marker: ClassVar[str]
    lock: ClassVar[str]
    beside: ClassVar[Collection[str]] = ()
    shared: ClassVar[bool] = True

    def __init__(self, files: Files) -> None:
        self.files = files

    @abstractmethod
    def owns(self, name: str) -> bool:
        """Return whether a file of this name belongs to the marker."""

    @abstractmethod
    def refusal(self, problem: str, **arguments: Any) -> Exception:
        """Return an error about this folder. ``arguments`` are those of the last advice, as in :class:`Advice`."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[None]:
        """Convert errors of the file system inside the block to errors for the user."""

    @contextmanager
    def opened(self, *, resume: bool, overwrite: bool) -> Iterator[bool]:
        """Make and lock the folder, remove temporary files, and yield whether to resume what the folder holds.

        Raises :meth:`refusal` if another process holds the lock, and for the reasons of :meth:`check`.
        """
        if resume and overwrite:
            raise ValueError("resume and overwrite contradict each other; choose one")
        with self._not_a_file():
            self.files.make()
        with self.locked():
            found = self.check(resume=resume, overwrite=overwrite)
            self.tidy()
            yield found and resume

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock. Raises :meth:`refusal` if another process holds it."""
        lock = self.files.locked(self.lock)
        with self.writing():
            try:
                lock.__enter__()
            except InUseError as error:
                raise self.refusal(f"is in use by {error}; wait for it, or choose another folder") from None
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def check(self, *, resume: bool = False, overwrite: bool = False) -> bool:
        """Return whether the folder has a marker. Raises :meth:`refusal` if no work can begin or go on there."""
        with self._not_a_file():
            names = self.files.names()
        ours = [name for name in names if name == self.marker or self.owns(name)]
        ignored = {self.lock, *self.beside, *filter(self._is_temporary, names)}
        foreign = [name for name in names if name not in ours and name not in ignored]
        if self.marker not in names:
            if found := sorted([*ours, *foreign]):
                raise self.refusal(
                    f"holds other files and no {self.what} ({', '.join(found[:3])}); choose a new or empty folder"
                )
            return False
        if not (resume or overwrite):
            raise self.refusal(
                f"already holds a {self.what}; choose another folder, or continue or replace the {self.what}",
                resume=True,
                overwrite=True,
            )
        if foreign and not self.shared:
            raise self.refusal(
                f"holds files that no {self.what} wrote ({', '.join(foreign[:3])}); choose another folder"
            )
        if folders := [name for name in ours if names[name]]:
            raise self.refusal(f"holds a folder {folders[0]}, but a {self.what} needs a file there; move it away")
        return True

    def tidy(self) -> None:
        """Remove the temporary files of a killed process."""
        with self.writing():
            self.files.remove(list(filter(self._is_temporary, self.files.names())))

    def clear(self) -> None:
        """Remove all files that belong to the marker, but not the marker itself."""
        with self.writing():
            self.files.remove(list(filter(self.owns, self.files.names())))

    def _is_temporary(self, name: str) -> bool:
        complete = named_when_complete(name)
        return complete is not None and (complete == self.marker or self.owns(complete))

    @contextmanager
    def _not_a_file(self) -> Iterator[None]:
        with self.writing():
            try:
                yield
            except (FileExistsError, NotADirectoryError):
                raise self.refusal(f"is a file; a {self.what} needs a folder") from None
