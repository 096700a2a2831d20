"""Tables from standard input or a network. Their bytes can be read only once, so a temporary file gets a copy."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sys
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from cubicflow.data.fetch import DownloadError, fetch
from cubicflow.extras import install
from cubicflow.tables.files.by_name import open_file
from cubicflow.tables.source import Table
from cubicflow.tables.table_error import TableError
from cubicflow.tables.text.reading import Reading

BY_ARROW = ("s3", "gs", "gcs")  # object stores that arrow reads without further packages
SUFFIXES = re.compile(r"\.(csv|tsv|jsonl|ndjson)(\.gz)?$|\.(parquet|pq|feather|arrow|arrows|ipc|xlsx|xlsm|npy|npz)$")
TIMEOUT = 20.0  # seconds to wait for an answer


class _Copy:
    """A folder for a temporary file. Garbage collection or the end of the process removes the folder."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="cubicflow-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class FetchedTable(Table):
    """A table in a temporary copy, named after its origin. The copy lives as long as the table."""

    def __init__(self, name: str, copy: _Copy, inner: Table, source: str | None) -> None:
        super().__init__(name, inner.types)
        self._read_like(inner)
        self.files = inner.files
        self._inner, self._copy, self._source = inner, copy, source

    def source(self) -> str | None:
        return self._source

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._inner.batches(columns, rows)
            self._add_remarks(self._inner)
        except TableError as error:
            raise _renamed(error, self._inner.path, self.path) from None

    def spooled(self, columns: Sequence[str], folder: Path | None = None) -> Table:
        try:
            kept = self._inner.spooled(columns, folder)
        except TableError as error:
            raise _renamed(error, self._inner.path, self.path) from None
        return self if kept is self._inner else FetchedTable(str(self.path), self._copy, kept, self._source)

    def fingerprint(self) -> str:
        return self._inner.fingerprint()


def standard_input(reading: Reading) -> Table:
    """Return the table that standard input sends. Raise TableError if standard input cannot be read."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise TableError("standard input cannot be read by several processes; save the table as a file first")
    if sys.stdin is None or sys.stdin.closed:
        raise TableError("standard input is closed; send a table to it, or give the name of a file")
    if sys.stdin.isatty():
        raise TableError("standard input is a terminal; send a table to it, as in: cat table.csv | cubicflow ...")

    return _fetched("standard input", None, _save_standard_input, "", reading)


def at_url(url: str, reading: Reading) -> Table:
    """Return the table at a URL, read by http or https, by arrow from an object store, or by fsspec."""
    scheme = urlsplit(url).scheme.lower()
    read = _download if scheme in ("http", "https") else _from_store if scheme in BY_ARROW else _by_fsspec
    ending = SUFFIXES.search(urlsplit(url).path.lower())
    return _fetched(url, without_secrets(url), partial(read, url), ending[0] if ending else "", reading)


def without_secrets(url: str) -> str:
    """Return a URL that is safe to store: without user and password, and without the query, which may hold a signature.

    >>> without_secrets("https://me:pass@example.org/t.csv?key=1")
    'https://example.org/t.csv'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def with_limited_retries(url: str) -> str:
    """Limit the retries of arrow at a Google store to TIMEOUT: its own limit is 15 minutes, also without credentials.

    A URL that has its own limit is not changed.

    >>> with_limited_retries("gs://bucket/a.parquet")
    'gs://bucket/a.parquet?retry_limit_seconds=20.0'
    """
    if urlsplit(url).scheme.lower() not in ("gs", "gcs") or "retry_limit_seconds=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}retry_limit_seconds={TIMEOUT}"


def _fetched(name: str, source: str | None, save: Callable[[Path], None], ending: str, reading: Reading) -> Table:
    """Return the table whose bytes ``save`` writes to a path. ``save`` raises OSError if the bytes cannot be read."""
    copy = _Copy()
    path = copy.path / "table"
    try:
        save(path)
    except OSError as error:
        raise TableError(f"{name}: could not be read: {_line(error)}") from None
    if not path.stat().st_size:
        raise TableError(f"{name}: the input is empty; send a table")
    path = path.rename(path.with_name(f"table{ending or ending_of(path)}"))
    try:
        return FetchedTable(name, copy, open_file(path, reading), source)
    except TableError as error:
        raise _renamed(error, path, name) from None


def _download(url: str, path: Path) -> None:
    try:
        fetch(url, path, timeout=TIMEOUT)
    except DownloadError as error:
        cause = error.__cause__
        code = getattr(cause, "code", None)
        if code is not None:
            raise OSError(f"the server answered {code} {getattr(cause, 'reason', '')}; check the address") from None
        reason = getattr(cause, "reason", None) or cause
        raise OSError(f"the server does not answer ({reason}); check the address and the network") from None
    except (ValueError, UnicodeError) as error:
        raise OSError(f"this is not a valid address: {error}") from None


def _save_standard_input(path: Path) -> None:
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)


def _from_store(url: str, path: Path) -> None:
    from pyarrow import fs

    try:
        store, name = fs.FileSystem.from_uri(with_limited_retries(url))
        with store.open_input_stream(name, compression=None) as stream, path.open("wb") as file:
            shutil.copyfileobj(stream, file)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise OSError(f"{_line(error)}; check the address and the credentials") from None


def _by_fsspec(url: str, path: Path) -> None:
    import fsspec  # torch requires it

    try:
        with fsspec.open(url, "rb") as stream, path.open("wb") as file:
            shutil.copyfileobj(stream, file)
    except ImportError as error:
        more = f"use: {install('fsspec')}, or install the package of this kind of store"
        raise OSError(f"{_line(error)}; {more}") from None
    except Exception as error:  # each fsspec store raises its own types of errors
        raise OSError(f"{_line(error)}; check the address and the credentials") from None


def ending_of(path: Path) -> str:
    """Return the ending that fits the first bytes of a file; ``.csv`` if no other format fits."""
    with path.open("rb") as file:
        start = file.read(16)
    if start.startswith(b"PAR1"):
        return ".parquet"
    if start.startswith((b"ARROW1", b"FEA1", b"\xff\xff\xff\xff")):
        return ".arrow"
    if start.startswith(b"\x93NUMPY"):
        return ".npy"
    if start.startswith(b"SQLite format 3"):
        return ".sqlite"
    if start.startswith(b"PK"):
        with suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(path) as archive:
            if any(name.startswith("xl/") for name in archive.namelist()):
                return ".xlsx"
        return ".npz"
    is_zipped = start.startswith(b"\x1f\x8b")
    if is_zipped:
        with suppress(OSError, EOFError, zlib.error), gzip.open(path) as unpacked:
            start = unpacked.read(16)
    return (".jsonl" if start.lstrip().startswith(b"{") else ".csv") + (".gz" if is_zipped else "")


def _renamed(error: TableError, path: object, name: object) -> TableError:
    """Return the error with the user's name of the table instead of the path of the temporary copy."""
    return TableError(str(error).replace(str(path), str(name)), error.option)


def _line(error: Any) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
