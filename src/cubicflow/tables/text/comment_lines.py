"""A stream of text without its comment lines."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

CHUNK = 1 << 20


class WithoutComments(io.RawIOBase):
    """The bytes of a file without the lines that begin with ``comment``. A line inside quotes is part of a value.

    >>> WithoutComments(io.BytesIO(b'#made today\\na,b\\n1,"x\\n#y"\\n#end'), b"#").read()
    b'a,b\\n1,"x\\n#y"\\n'
    """

    def __init__(self, file: BinaryIO | io.RawIOBase, comment: bytes) -> None:
        super().__init__()
        self._file, self._comment = file, comment
        self._rest, self._ready, self._quoted = b"", b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            block = self._file.read(CHUNK) or b""
            text = self._rest + block
            whole, end, self._rest = text.rpartition(b"\n") if block else (text, b"", b"")
            self._ready = self._kept(whole + end)
            if not block:
                break
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def _kept(self, text: bytes) -> bytes:
        if self._comment not in text:
            self._quoted ^= text.count(b'"') % 2 == 1
            return text
        kept = []
        for line in text.splitlines(keepends=True):
            if self._quoted or not line.lstrip(b" \t").startswith(self._comment):
                kept.append(line)
                self._quoted ^= line.count(b'"') % 2 == 1
        return b"".join(kept)

    def close(self) -> None:
        self._file.close()
        super().close()
