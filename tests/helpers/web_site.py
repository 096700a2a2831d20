"""Fixtures of downloads: an empty cache, and a web server on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder. The only data folder is the one that a test sets."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CUBICFLOW_CACHE", str(folder))
    monkeypatch.delenv("CUBICFLOW_DATA", raising=False)
    return folder


@dataclass
class Site:
    """A web server on this machine, with the files that it serves and the requests that it received."""

    url: str
    pages: dict[str, bytes] = field(default_factory=dict)
    cut_short: set[str] = field(default_factory=set)  # paths whose answer stops halfway
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            served.asked.append(path)
            if path not in served.pages:
                self.send_error(404)
                return
            body = served.pages[path]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if path in served.cut_short else body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Site(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
