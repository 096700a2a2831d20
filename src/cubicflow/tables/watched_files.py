"""Files that must not change between the opening of a table and the reading of its last row."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cubicflow.tables.table_error import TableError

TICK = 10_000_000  # ns; the resolution of file timestamps
Stamp = tuple[int, ...]


class WatchedFiles:
    """A record of the sizes and timestamps of files, to detect changes.

    No program can set the time of the last change (``ctime``). So a changed or replaced file is detected even if its
    size and modification time were restored. A file that was only touched counts as changed, because the two cannot be
    told apart. Inode numbers would add nothing, and some filesystems reassign them.

    Args:
        path: the name in messages.
        find: returns the files; called for every check, because a folder may gain files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "t.csv")
    ...     _ = path.write_text("a,b")
    ...     watched = WatchedFiles(path, lambda: [path])
    ...     watched.check()
    ...     _ = path.write_text("b,a")
    ...     try:
    ...         watched.check()
    ...     except TableError as error:
    ...         print(str(error).removeprefix(folder))
    /t.csv: the file changed while it was read; start again when no program writes to it
    """

    def __init__(self, path: Path, find: Callable[[], Sequence[Path]]) -> None:
        self.path, self._find = path, find
        newest = max((stamp[-1] for stamp in self._stamps()), default=0)
        # Another change within the same tick would leave the timestamp unchanged.
        if 0 <= time.time_ns() - newest < TICK:
            time.sleep(TICK / 1e9)
        self._recorded = self._stamps()

    def _stamps(self) -> list[Stamp]:
        """Return the size, the modification time and the change time of each file."""
        found = [path.stat() for path in self._find()]
        return [(file.st_size, file.st_mtime_ns, file.st_ctime_ns) for file in found]

    def check(self) -> None:
        """Raise TableError if a file has changed."""
        try:
            now = self._stamps()
        except OSError:
            now = []
        if now != self._recorded:
            raise changed(self.path)


def changed(path: object, how: str = "") -> TableError:
    """Return the error for a file that changed."""
    return TableError(f"{path}: the file changed while it was read{how}; start again when no program writes to it")
