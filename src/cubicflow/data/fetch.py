"""One file from the network: whole, checked, and under its own name only when it is both.

A file is written beside its destination under a temporary name and renamed once it has passed every check, so a path
that exists is a file that was complete: an interrupted or damaged download leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from cubicflow.atomic_files import replacing

CHUNK = 1 << 20
Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where the server says
Check = Callable[[Path], None]  # raises DownloadError where the file is not what it should be


class DownloadError(OSError):
    """A download that did not arrive, or is not the file it should be. Nothing was kept."""


def fetch(
    url: str,
    path: Path,
    *,
    check: Check | None = None,
    progress: Progress | None = None,
    timeout: float = 60.0,
) -> Path:
    """Download ``url`` to ``path``, replacing it only by a complete file that passes ``check``."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"only http and https addresses are downloaded, got {url!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        try:
            # The scheme was checked above, so this never opens a local file.
            request = urllib.request.Request(url, headers={"User-Agent": "cubicflow"})  # noqa: S310
            with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
                length = response.headers.get("Content-Length")
                _copy(response, file, int(length) if length else None, progress)
        except urllib.error.HTTPError as error:
            error.close()
            raise DownloadError(
                f"{url} answered {error.code} {error.reason}. If the file has moved, fetch it with a browser and put "
                f"it at {path}."
            ) from error
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            reason = getattr(error, "reason", None) or error
            raise DownloadError(
                f"could not download {url}: {reason}. Try again, or fetch the file on a machine with a network and "
                f"put it at {path}."
            ) from error
        file.flush()
        if check is not None:
            check(Path(file.name))
    return path


def checksum(algorithm: str, expected: str) -> Check:
    """A check that a file's bytes have this digest (``"md5"``, ``"sha256"``)."""

    def check(path: Path) -> None:
        found = file_digest(path, algorithm)
        if found != expected:
            raise DownloadError(
                f"the download's {algorithm} is {found}, expected {expected}: the file is damaged or has changed at "
                "its source. It was not kept; try again."
            )

    return check


def file_digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _copy(response: BinaryIO, file: BinaryIO, total: int | None, progress: Progress | None) -> None:
    done = 0
    while block := response.read(CHUNK):
        file.write(block)
        done += len(block)
        if progress is not None:
            progress(done, total)
    if total is not None and done != total:  # http.client does not always say so itself
        raise ConnectionError(f"the connection closed after {done:,} of {total:,} bytes")
