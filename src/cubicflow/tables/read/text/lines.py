"""The lines of a CSV file: comments left out, lines counted while they are read, and a reason where rows are fewer."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

CHUNK = 1 << 20
LONGEST_LINE = 1 << 24  # bytes; no parser takes a longer line
TAIL = 1 << 16  # bytes at the end of a file in which its last line is looked for


class WithoutComments(io.RawIOBase):
    """The bytes of a file without the lines that begin with ``comment``. A line inside quotes is part of a value.

    ``count`` is the number of lines left out so far.

    >>> WithoutComments(io.BytesIO(b'#made today\\na,b\\n1,"x\\n#y"\\n#end'), b"#", b",").read()
    b'a,b\\n1,"x\\n#y"\\n'
    """

    def __init__(self, file: BinaryIO | io.RawIOBase, comment: bytes, delimiter: bytes) -> None:
        super().__init__()
        self._file, self._comment, self._delimiter = file, comment, delimiter
        self._rest, self._ready, self._quoted = b"", b"", False
        self.count = 0

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
        if not self._quoted and self._comment not in text and b'"' not in text:
            return text
        kept = []
        for line in text.splitlines(keepends=True):
            if not self._quoted and is_comment(line, self._comment):
                self.count += 1
                continue
            kept.append(line)
            self._quoted = open_quote(line, self._delimiter, is_open=self._quoted) is not None
        return b"".join(kept)

    def close(self) -> None:
        self._file.close()
        super().close()


class CountedLines(io.RawIOBase):
    """A file whose lines are counted while they are read. A line ends with a line feed, a carriage return, or both.

    >>> file = CountedLines(io.BytesIO(b"a\\r\\nb\\rc"))
    >>> file.read(2), file.read(-1), file.count
    (b'a\\r', b'\\nb\\rc', 3)
    >>> file.last_line
    b'c'
    """

    def __init__(self, file: BinaryIO | io.RawIOBase) -> None:
        super().__init__()
        self._file, self._ends, self._last, self._tail = file, 0, b"", b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        text: bytes = self._file.read(size) or b""
        if text:
            self._ends += text.count(b"\n")
            if b"\r" in text or self._last == b"\r":
                self._ends += text.count(b"\r") - text.count(b"\r\n") - (self._last == b"\r" and text[:1] == b"\n")
            self._last = text[-1:]
            self._tail = (self._tail + text[-TAIL:])[-TAIL:]
        return text

    @property
    def count(self) -> int:
        """The number of lines read. The last line may lack an end."""
        return self._ends + (self._last not in (b"", b"\n", b"\r"))

    @property
    def last_line(self) -> bytes:
        """The last line read, without its end; only the end of a line that is longer than TAIL."""
        return next(reversed(self._tail.splitlines()), b"")

    def close(self) -> None:
        self._file.close()
        super().close()


@dataclass
class ScannedLines:
    """The reasons why a file has fewer rows than lines.

    ``empty`` is the number of empty lines, and ``continued`` that of the lines that continue a quoted text.
    ``first_open`` is the number, from 1, of the first line at whose end a quoted text is open; None if there is none.
    ``never_closed`` is the number of the line whose quoted text has no end. ``uneven`` is the number of the first line
    with another number of values than the header.
    """

    empty: int = 0
    continued: int = 0
    first_open: int | None = None
    never_closed: int | None = None
    uneven: int | None = None


def scan_lines(
    file: BinaryIO | io.RawIOBase, delimiter: bytes, comment: bytes, skipped: int, columns: int | None = None
) -> ScannedLines:
    """Return the lines of a file that are not rows. The first ``skipped`` lines that are not comments are left out.

    ``columns`` is the number of values that ``uneven`` compares with; None leaves ``uneven`` out.

    >>> scan_lines(io.BytesIO(b'a,b\\n1,"x\\n\\ny"\\n\\n2,3\\n4'), b",", b"", 1, 2)
    ScannedLines(empty=1, continued=2, first_open=2, never_closed=None, uneven=7)
    """
    found, opened = ScannedLines(), None
    for number, line in enumerate(lines_of(file), 1):
        if opened is None and comment and is_comment(line, comment):
            continue
        if skipped:
            skipped -= 1
            continue
        found.continued += opened is not None
        is_empty, is_begun = not line.rstrip(b"\r\n"), opened is not None
        found.empty += is_empty and not is_begun
        place = open_quote(line, delimiter, is_open=is_begun)
        if columns and found.uneven is None and not is_empty and not is_begun and place is None:
            found.uneven = number if _values(line, delimiter) != columns else None
        opened = None if place is None else opened if place < 0 else number
        found.first_open = found.first_open or opened
    found.never_closed = opened
    return found


def lines_of(file: BinaryIO | io.RawIOBase) -> Iterator[bytes]:
    """Yield the lines of a file with their ends. Stops at a line that is longer than LONGEST_LINE."""
    rest = (file.read(CHUNK) or b"").removeprefix(b"\xef\xbb\xbf")
    while len(rest) < LONGEST_LINE and (block := file.read(CHUNK)):
        *whole, rest = (rest + block).splitlines(keepends=True)  # the last line may go on, or lack its line feed
        yield from whole
    yield from rest.splitlines(keepends=True)


def _values(line: bytes, delimiter: bytes) -> int:
    """Return the number of values in a line without open quotation marks."""
    start = b"(^|" + re.escape(delimiter) + b")"
    return re.sub(start + b'"(?:[^"]|"")*"', rb"\1", line).count(delimiter) + 1


def is_comment(line: bytes, comment: bytes) -> bool:
    return line.lstrip(b" \t").startswith(comment)


def open_quote(line: bytes, delimiter: bytes, *, is_open: bool) -> int | None:
    """Return the place of the quotation mark whose text is open at the end of a line.

    A quotation mark opens a text only at the start of a value, so 5" is plain text. Two in a row are part of the text.
    The result is -1 if the text has been open since an earlier line (``is_open``), and None if no text is open.

    >>> open_quote(b'5" pipe,"a, ""b""', b",", is_open=False), open_quote(b'b",c', b",", is_open=True)
    (8, None)
    """
    opened, place = -1, 0
    while True:
        if not is_open:  # at the start of a value
            if line[place : place + 1] != b'"':
                place = line.find(delimiter + b'"', place) + len(delimiter)
                if place < len(delimiter):
                    return None
            opened, place, is_open = place, place + 1, True
        place = line.find(b'"', place) + 1
        if not place:
            return opened
        if line[place : place + 1] == b'"':
            place += 1
            continue
        place, is_open = line.find(delimiter, place) + len(delimiter), False
        if place < len(delimiter):
            return None
