"""The server of the page. It listens on 127.0.0.1 only, needs a token, and runs until Ctrl-C or SIGTERM."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cubicflow.advice import Advice
from cubicflow.extras import need

need("starlette", "the page")
need("uvicorn", "the page")

import uvicorn  # noqa: E402

from cubicflow.explore.app import Opening, make_app  # noqa: E402 - it imports starlette, which may be absent
from cubicflow.explore.cached_overview import sound_config  # noqa: E402

HOST = "127.0.0.1"
PORT = 8470
PORTS = 100  # number of ports to try


def serve(run: Path, *, port: int | None, browser: bool, report: Callable[[str], None]) -> None:
    """Serve the page of a run until a signal stops the server. ``report`` is called with lines such as the address."""
    if sound_config(run) is None:
        from cubicflow.flows.serialization import read_config

        read_config(run)  # raises here, not on the page, if the folder is not a run
    listening, taken = listen(PORT if port is None else port)
    number = listening.getsockname()[1]
    if taken:
        report(f"port {taken} is in use; the next free port is used")
    token = secrets.token_urlsafe(24)
    address = f"http://{HOST}:{number}/?token={token}"
    quiet: dict[str, Any] = {"log_level": "critical", "access_log": False, "lifespan": "off"}
    server = Server(uvicorn.Config(make_app(Opening(run), token, number), timeout_graceful_shutdown=0, **quiet))
    report(address)
    report("press Ctrl-C to stop the server")
    with listening, private_link(address) as link:
        if browser:
            threading.Timer(0.1, webbrowser.open, (link,)).start()
        server.run(sockets=[listening])


def listen(port: int) -> tuple[socket.socket, int | None]:
    """Return a socket that listens at the port or at the next free one, and the requested port if it was taken.

    Port 0 lets the system choose.
    """
    if not 0 <= port < 1 << 16:
        raise ValueError(f"the port must be 0 to 65535, got {port}")
    for number in range(port, min(port + PORTS, 1 << 16)):
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, number))
            found.listen(64)
        except OSError as error:
            found.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            continue
        return found, port if number != port else None
    raise OSError(Advice(f"no port from {port} to {port + PORTS - 1} is free; give another", port=...))


@contextmanager
def private_link(address: str) -> Iterator[str]:
    """Write a file that only this user can read and that leads to an address, and yield the file's own address.

    Every user of a machine sees the arguments of a browser that starts, so the token must not be one of them.
    """
    handle, name = tempfile.mkstemp(prefix="cubicflow-", suffix=".html")
    with os.fdopen(handle, "w") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}"><title>cubicflow</title>\n')
    try:
        yield Path(name).as_uri()
    finally:
        Path(name).unlink(missing_ok=True)


class Server(uvicorn.Server):
    """A server that a signal stops at once, even if browsers are still connected."""

    def handle_exit(self, *_: Any) -> None:
        self.should_exit = self.force_exit = True
