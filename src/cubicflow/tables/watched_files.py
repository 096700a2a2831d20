"""Files that have to stay as they are from the moment a table is opened until its last row is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cubicflow.tables.table_error import TableError

TICK = 10_000_000  # ns; the clock that stamps files may stand still for so long
Stamp = tuple[int, ...]


class WatchedFiles:
    """Notes what the system says of files: their sizes, and when they were last changed.

    The time of the last change (``ctime``) cannot be set by a program, so a file that was changed, or has taken the
    name of another, and was given its old size and date is noticed too. So is one that was only touched: nobody can
    tell that from a change. Numbers of files (``inode``) would say no more, and some filesystems give them anew.

    Args:
        path: what messages name.
        find: gives the files, anew each time: a folder may gain some.

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
    /t.csv: the file changed while it was read; begin again when nothing writes to it
    """

    def __init__(self, path: Path, find: Callable[[], Sequence[Path]]) -> None:
        self.path, self._find = path, find
        newest = max((stamp[-1] for stamp in self._stamps()), default=0)
        # Another change within the same tick of the clock would leave no trace.
        if 0 <= time.time_ns() - newest < TICK:
            time.sleep(TICK / 1e9)
        self._noted = self._stamps()

    def _stamps(self) -> list[Stamp]:
        found = [path.stat() for path in self._find()]
        return [(file.st_size, file.st_mtime_ns, file.st_ctime_ns) for file in found]

    def check(self) -> None:
        """Refuse files that are no longer what they were."""
        try:
            now = self._stamps()
        except OSError:
            now = []
        if now != self._noted:
            raise changed(self.path)


def changed(path: object, how: str = "") -> TableError:
    """What is said of a file that changed."""
    return TableError(f"{path}: the file changed while it was read{how}; begin again when nothing writes to it")
