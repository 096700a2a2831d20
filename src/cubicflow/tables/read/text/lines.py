"""The lines of a text file: read in blocks, counted, searched for comments and quotation marks, and explained where
rows are fewer."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cubicflow.tables.read.file_checks import check_unpacked
from cubicflow.tables.table_error import TableError

BLOCK_BYTES = 1 << 22
LONGEST_LINE = 1 << 24  # bytes
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def line_blocks(path: Path) -> Iterator[bytes]:
    """Yield the text of a file, unpacked if its name ends in .gz, in blocks of whole lines.

    A line ends with a line feed, a carriage return, or both. Raises TableError for a file that cannot be read, that
    unpacks to an implausible size, or that has a line longer than LONGEST_LINE.
    """
    rest, count = b"", 0
    try:
        size, is_packed = path.stat().st_size, path.suffix == ".gz"
        with gzip.open(path) if is_packed else path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                text = rest + (block if count else block.removeprefix(BYTE_ORDER_MARK))
                count += len(block)
                if is_packed:
                    check_unpacked(path, size, count)
                end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1  # a line feed may follow the last byte
                rest = text[end:]
                if len(rest) > LONGEST_LINE:
                    raise too_long(path)
                if end:
                    yield text[:end]
    except (OSError, EOFError, zlib.error) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TableError(
            f"{path}: cannot be read: {what}; check its permissions and its disk, or write the file again"
        ) from None
    if rest:
        yield rest


def too_long(path: Path) -> TableError:
    return TableError(
        f"{path}: a line is longer than {LONGEST_LINE >> 20} MiB; write one row in a line, and close quotation marks"
    )


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file with their ends."""
    for text in line_blocks(path):
        yield from text.splitlines(keepends=True)


def number_of_lines(text: bytes) -> int:
    r"""Return the number of lines in a text. The last line may lack an end.

    >>> number_of_lines(b"a\r\nb\rc")
    3
    """
    ends = text.count(b"\n")
    if b"\r" in text:
        ends += text.count(b"\r") - text.count(b"\r\n")
    return ends + (not text.endswith((b"\n", b"\r")) and text != b"")


def last_line(text: bytes) -> bytes:
    """Return the last line of a text, without its end."""
    end = len(text) - text.endswith((b"\n", b"\r")) - text.endswith(b"\r\n")
    return text[max(text.rfind(b"\n", 0, end), text.rfind(b"\r", 0, end)) + 1 : end]


def without_comments(text: bytes, comment: bytes, delimiter: bytes) -> tuple[bytes, int]:
    r"""Return a text without the lines that begin with ``comment``, and their number. A line inside quotes is part of a
    value.

    >>> without_comments(b'#made today\na,b\n1,"x\n#y"\n#end', b"#", b",")
    (b'a,b\n1,"x\n#y"\n', 2)
    """
    if not comment or comment not in text:
        return text, 0
    kept, is_open, count = [], False, 0
    for line in text.splitlines(keepends=True):
        if not is_open and is_comment(line, comment):
            count += 1
            continue
        kept.append(line)
        is_open = open_quote(line, delimiter, is_open=is_open) is not None
    return b"".join(kept), count


@dataclass
class ScannedLines:
    """The reasons why some text has fewer rows than lines.

    ``empty`` is the number of empty lines, and ``continued`` that of the lines that continue a quoted text.
    ``first_open`` is the number, from 1, of the first line at whose end a quoted text is open; None if there is none.
    ``never_closed`` is the number of the line whose quoted text has no end; its row begins in line ``unfinished``.
    ``uneven`` is the number of the first line with another number of values than the header.
    """

    empty: int = 0
    continued: int = 0
    first_open: int | None = None
    never_closed: int | None = None
    unfinished: int | None = None
    uneven: int | None = None


def scan_lines(
    lines: Iterable[bytes], delimiter: bytes, comment: bytes = b"", skipped: int = 0, columns: int | None = None
) -> ScannedLines:
    r"""Return the reasons why lines are not rows. The first ``skipped`` lines that are not comments are left out.

    ``columns`` is the number of values that ``uneven`` compares with; None leaves ``uneven`` out.

    >>> scan_lines(b'a,b\n1,"x\n\ny"\n\n2,3\n4'.splitlines(keepends=True), b",", skipped=1, columns=2)
    ScannedLines(empty=1, continued=2, first_open=2, never_closed=None, unfinished=None, uneven=7)
    """
    found, opened, row = ScannedLines(), None, 0
    for number, line in enumerate(lines, 1):
        if opened is None and comment and is_comment(line, comment):
            continue
        if skipped:
            skipped -= 1
            continue
        found.continued += opened is not None
        is_empty, is_begun = not line.rstrip(b"\r\n"), opened is not None
        row = row if is_begun else number
        found.empty += is_empty and not is_begun
        place = open_quote(line, delimiter, is_open=is_begun)
        if columns and found.uneven is None and not is_empty and not is_begun and place is None:
            found.uneven = number if _values(line, delimiter) != columns else None
        opened = None if place is None else opened if place < 0 else number
        found.first_open = found.first_open or opened
    if opened is not None:
        found.never_closed, found.unfinished = opened, row
    return found


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
