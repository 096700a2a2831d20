"""Temporary copies of tables whose bytes can be read only once: from standard input or a network."""

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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from cubicflow.downloads import DownloadError, fetch
from cubicflow.extras import install
from cubicflow.tables.table_error import TableError

BY_ARROW = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")  # stores that arrow reads by itself
SUFFIXES = re.compile(r"\.(csv|tsv|jsonl|ndjson)(\.gz)?$|\.(parquet|pq|feather|arrow|arrows|ipc|xlsx|xlsm|npy|npz)$")
TIMEOUT = 20.0  # seconds to wait for an answer


class Copy:
    """A copy of a table in a temporary folder. Garbage collection or the end of the process removes the folder.

    Args:
        name: the name of the table in messages.
        source: where to find the table again; None if it cannot be read again.
        save: writes the bytes to a path; raises OSError if the bytes cannot be read.
        ending: the ending of the file's name; if it is empty, the file's first bytes tell it.
    """

    def __init__(self, name: str, source: str | None, save: Callable[[Path], None], ending: str = "") -> None:
        folder = Path(tempfile.mkdtemp(prefix="cubicflow-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.name, self.source = name, source
        path = folder / "table"
        try:
            save(path)
        except OSError as error:
            raise TableError(f"{name}: could not be read: {_line(error)}") from None
        if not path.stat().st_size:
            raise TableError(f"{name}: the input is empty; send a table")
        self.path = path.rename(path.with_name(f"table{ending or ending_of(path)}"))

    def renamed(self, error: TableError) -> TableError:
        """Return the error with the user's name of the table instead of the path of the copy."""
        return TableError(error.advice.message.replace(str(self.path), self.name), **error.advice.arguments)


def copy_of_standard_input() -> Copy:
    """Return a copy of what standard input sends. Raise TableError if standard input cannot be read."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise TableError("standard input cannot be read by several processes; save the table as a file first")
    if sys.stdin is None or sys.stdin.closed:
        raise TableError("standard input is closed; send a table to it, or give the name of a file")
    if sys.stdin.isatty():
        raise TableError("standard input is a terminal; send a table to it, as in: cat table.csv | cubicflow ...")
    return Copy("standard input", None, _save_standard_input)


def copy_of_url(url: str) -> Copy:
    """Return a copy of the bytes at a URL, read by http or https, by arrow from an object store, or by fsspec."""
    save = _download if urlsplit(url).scheme.lower() in ("http", "https") else _from_store
    ending = SUFFIXES.search(urlsplit(url).path.lower())
    return Copy(url, without_secrets(url), partial(save, url), ending[0] if ending else "")


def file_system(url: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URL, and the path in that file system. Raises ImportError if a package is
    missing."""
    if urlsplit(url).scheme.lower() in BY_ARROW:
        store, path = fs.FileSystem.from_uri(with_limited_retries(url))
        return store, path
    import fsspec  # torch requires it

    files, path = fsspec.core.url_to_fs(url)
    return fs.PyFileSystem(fs.FSSpecHandler(files)), path


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


def _download(url: str, path: Path) -> None:
    try:
        fetch(url, path, timeout=TIMEOUT)
    except DownloadError as error:
        code, reason = (getattr(error.__cause__, name, None) for name in ("code", "reason"))
        if code is not None:
            raise OSError(f"the server answered {code} {reason or ''}; check the address") from None
        reason = reason or error.__cause__
        raise OSError(f"the server does not answer ({reason}); check the address and the network") from None
    except (ValueError, UnicodeError) as error:
        raise OSError(f"this is not a valid address: {error}") from None


def _save_standard_input(path: Path) -> None:
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)


def _from_store(url: str, path: Path) -> None:
    try:
        store, name = file_system(url)
        with store.open_input_stream(name, compression=None) as stream, path.open("wb") as file:
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


def _line(error: Any) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
