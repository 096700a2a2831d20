"""Downloads of single files from a local server: the content, the checks, and that no partial file remains."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from tests.helpers.web_site import files_under, site

from cubicflow.downloads import DownloadError, fetch

__all__ = ["site"]  # a fixture


def test_fetch(site, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    site.pages["/file"] = content
    calls: list[tuple[int, int | None]] = []
    checked: list[bytes] = []
    path = fetch(
        f"{site.url}/file",
        tmp_path / "a/b/file",
        check=lambda found: checked.append(found.read_bytes()),
        progress=lambda *call: calls.append(call),
    )
    assert checked == [content]
    assert path.read_bytes() == content
    assert files_under(tmp_path) == ["a/b/file"]
    assert calls[-1] == (len(content), len(content))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert len(calls) > 2, "a large file reports its progress before the end"


def test_fetched_files_have_ordinary_permissions(site, tmp_path: Path) -> None:
    site.pages["/file"] = b"x"
    (tmp_path / "ordinary").write_bytes(b"x")
    fetch(f"{site.url}/file", tmp_path / "fetched")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ordinary", "fetched")]
    assert modes[0] == modes[1]


def refuse(path: Path) -> None:
    assert path.read_bytes() == b"new" * 1000
    raise DownloadError("not the expected file")


@pytest.mark.parametrize("fault", ["refused by the check", "missing", "cut short", "refused"])
def test_a_failed_fetch_keeps_what_was_there_and_leaves_nothing_else(site, tmp_path: Path, fault: str) -> None:
    site.pages["/file"] = b"new" * 1000
    url, check, message = f"{site.url}/file", None, ""
    if fault == "refused by the check":
        check, message = refuse, "not the expected file"
    elif fault == "missing":
        url, message = f"{site.url}/other", r"returned 404 Not Found.*put it at"
    elif fault == "cut short":
        site.cut_short.add("/file")
        message = "could not download"
    else:
        with socket.socket() as unused:  # bound and closed, so nothing listens there
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}/file"
        message = r"could not download .*download the file on a machine with a network and put it at"
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(DownloadError, match=message):
        fetch(url, tmp_path / "file", check=check, timeout=300)
    assert files_under(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_an_interrupt_leaves_nothing(site, tmp_path: Path) -> None:
    site.pages["/file"] = b"x" * 100

    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(f"{site.url}/file", tmp_path / "file", progress=interrupt)
    assert files_under(tmp_path) == []


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://example.org/x", "nothing"])
def test_only_http_addresses_are_fetched(tmp_path: Path, url: str) -> None:
    with pytest.raises(ValueError, match="url must start with http:// or https://"):
        fetch(url, tmp_path / "file")
