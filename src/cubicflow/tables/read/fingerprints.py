"""Fingerprints of files, which tell whether a table is the fitted one."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BLOCKS = 64  # blocks of a file that its fingerprint covers
BLOCK_BYTES = 1 << 16
READ_BYTES = 1 << 22


def fingerprint_blocks(size: int) -> list[tuple[int, int]]:
    """Return the (start, stop) bytes of every block that the fingerprint of a file covers.

    A file up to 4 MiB is hashed whole. Of a larger file only 64 evenly spaced blocks are hashed, so the time does not
    grow with the file.
    """
    if size <= BLOCKS * BLOCK_BYTES:
        return [(0, size)]
    starts = [(size - BLOCK_BYTES) * i // (BLOCKS - 1) for i in range(BLOCKS)]
    return [(start, start + BLOCK_BYTES) for start in starts]


def fingerprint_of_files(paths: Sequence[Path]) -> str:
    """Return a hash of the sizes of the files and of their blocks."""
    digest = hashlib.sha256()
    for path in paths:
        size = path.stat().st_size
        digest.update(size.to_bytes(8, "big"))
        with path.open("rb") as file:
            for first, last in fingerprint_blocks(size):
                file.seek(first)
                digest.update(file.read(last - first))
    return digest.hexdigest()


class FingerprintedFile(io.RawIOBase):
    """A file whose fingerprint is computed from its bytes while they are read."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("rb", buffering=0)
        size = os.fstat(self._file.fileno()).st_size
        self._digest = hashlib.sha256(size.to_bytes(8, "big"))
        self._blocks = fingerprint_blocks(size)
        self._place = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        start, self._place = self._place, self._place + count
        seen = memoryview(buffer)[:count]
        while self._blocks and self._blocks[0][0] < self._place:
            first, last = self._blocks[0]
            self._digest.update(seen[max(first - start, 0) : last - start])
            if last > self._place:  # the rest of the block comes with the next read
                break
            self._blocks.pop(0)
        return count

    def fingerprint(self) -> str:
        """Return the fingerprint of the whole file, after reading the bytes that no parser needed."""
        while self.read(READ_BYTES):
            pass
        return self._digest.hexdigest()

    def close(self) -> None:
        self._file.close()
        super().close()
