"""Rows of a .npy file, read in parts. A memory map would crash the process if another program truncated the file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.watched_files import changed

Array = NDArray[Any]


class NpyFile:
    """The rows of an array in a .npy file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "x.npy")
    ...     np.save(path, np.arange(12.0).reshape(4, 3))
    ...     NpyFile(path, np.load(path, mmap_mode="r")).rows(1, 3)
    array([[3., 4., 5.],
           [6., 7., 8.]])
    """

    def __init__(self, path: Path, mapped: np.memmap[Any, Any]) -> None:
        self._path = path
        self._offset, self._shape, self._dtype = mapped.offset, mapped.shape, mapped.dtype
        self._by_columns = mapped.ndim > 1 and mapped.flags.f_contiguous and not mapped.flags.c_contiguous

    def rows(self, start: int, stop: int) -> Array:
        """Return the rows from ``start`` up to, but not including, ``stop``."""
        stop = min(stop, self._shape[0])
        try:
            with self._path.open("rb", buffering=0) as file:
                if not self._by_columns:
                    shape = (stop - start, *self._shape[1:])
                    return self._block(file.fileno(), start * int(np.prod(shape[1:])), shape)
                columns = int(np.prod(self._shape[1:]))
                places = (i * self._shape[0] + start for i in range(columns))
                found = [self._block(file.fileno(), place, (stop - start,)) for place in places]
        except OSError:
            raise changed(self._path) from None
        return np.stack(found, axis=1).reshape((stop - start, *self._shape[1:]), order="F")

    def _block(self, descriptor: int, first: int, shape: tuple[int, ...]) -> Array:
        """Return an array of consecutive values of the file. ``first`` is the index of the first value."""
        found = np.empty(shape, self._dtype)
        unfilled = memoryview(found.reshape(-1).view(np.uint8).data)
        place = self._offset + first * self._dtype.itemsize
        while len(unfilled):
            count = os.preadv(descriptor, [unfilled], place)
            if not count:  # the file has become shorter than its array
                raise changed(self._path)
            unfilled, place = unfilled[count:], place + count
        return found
