"""Downloads of single files.

A file is written under a temporary name next to its destination, and renamed when it is complete and has passed its
check. So an interrupted or damaged download leaves no file behind.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from cubicflow.files import replacing

CHUNK = 1 << 20
Progress = Callable[[int, int | None], None]  # bytes so far; total bytes, None if the server does not send them
Check = Callable[[Path], None]  # raises DownloadError if the file is not the expected one


class DownloadError(OSError):
    """A download failed, or the file is not the expected one. No file was kept."""


def fetch(
    url: str,
    path: Path,
    *,
    check: Check | None = None,
    progress: Progress | None = None,
    timeout: float = 60.0,
) -> Path:
    """Download ``url`` to ``path`` and return the path. An incomplete or wrong file never replaces ``path``.

    Args:
        url: an http or https address.
        path: the destination.
        check: called with the temporary file; raises DownloadError if the file is not the expected one.
        progress: called with the bytes so far and the total.
        timeout: seconds without data after which the download fails.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"url must start with http:// or https://, got {url!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        try:
            # The scheme is http or https (checked above), so urlopen never opens a local file.
            request = urllib.request.Request(url, headers={"User-Agent": "cubicflow"})  # noqa: S310
            with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
                length = response.headers.get("Content-Length")
                _copy(response, file, int(length) if length else None, progress)
        except urllib.error.HTTPError as error:
            error.close()
            raise DownloadError(
                f"{url} returned {error.code} {error.reason}. If the file has moved, download it with a browser and "
                f"put it at {path}."
            ) from error
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            reason = getattr(error, "reason", None) or error
            raise DownloadError(
                f"could not download {url}: {reason}. Try again, or download the file on a machine with a network and "
                f"put it at {path}."
            ) from error
        file.flush()
        if check is not None:
            check(Path(file.name))
    return path


def _copy(response: BinaryIO, file: BinaryIO, total: int | None, progress: Progress | None) -> None:
    done = 0
    while block := response.read(CHUNK):
        file.write(block)
        done += len(block)
        if progress is not None:
            progress(done, total)
    if total is not None and done != total:  # http.client does not always raise for a short response
        raise ConnectionError(f"the connection closed after {done:,} of {total:,} bytes")
