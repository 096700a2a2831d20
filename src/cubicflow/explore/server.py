"""The server of the page. It listens on 127.0.0.1 only, needs a token, and runs until Ctrl-C or SIGTERM."""

from __future__ import annotations

import errno
import logging
import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubicflow.explore.first_picture import ROUTES, FirstPicture, sound_config
from cubicflow.extras import need

if TYPE_CHECKING:
    import uvicorn

LOG = logging.getLogger(__name__)
HOST = "127.0.0.1"
PORT = 8470
PORTS = 100  # number of ports to try
LAST_ROUTE = f"/api/{ROUTES[-1]}"  # the last answer of the first picture
LONGEST_WAIT = 3.0  # seconds that a kept picture is waited for before torch is imported


def serve(run: Path, *, port: int | None, browser: bool, report: Callable[[str], None]) -> None:
    """Serve the page of a run until a signal stops the server. ``report`` is called with lines such as the address."""
    need("starlette", "the page")
    uvicorn = need("uvicorn", "the page")
    if sound_config(run) is None:
        from cubicflow.flows.serialization import read_config

        read_config(run)  # raises here, not on the page, if the folder is not a run
    listening, taken = listen(PORT if port is None else port)
    number = listening.getsockname()[1]
    if taken:
        report(f"port {taken} is in use; the next free port is used")
    token = secrets.token_urlsafe(24)
    address = f"http://{HOST}:{number}/?token={token}"
    config = uvicorn.Config(
        _deferred(run, token, number),
        log_level="critical",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=0,
    )
    server = uvicorn.Server(config)
    report(address)
    report("press Ctrl-C to stop the server")
    if browser:
        threading.Timer(0.1, webbrowser.open, (address,)).start()
    with listening, stopping(server):
        server.run(sockets=[listening])


def listen(port: int) -> tuple[socket.socket, int | None]:
    """Return a socket that listens at the port or at the next free one, and the requested port if it was taken.

    Port 0 lets the system choose.
    """
    if not 0 <= port < 1 << 16:
        raise ValueError(f"--port must be 0 to 65535, got {port}")
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
    raise OSError(f"no port from {port} to {port + PORTS - 1} is free; give another with --port")


@contextmanager
def stopping(server: uvicorn.Server) -> Iterator[None]:
    """Stop the server at once on Ctrl-C and SIGTERM, even if browsers are still connected."""

    @contextmanager
    def caught() -> Iterator[None]:
        def stop(*_: Any) -> None:
            server.should_exit = server.force_exit = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    server.capture_signals = caught  # type: ignore[method-assign] # uvicorn's own handlers wait for connected browsers
    yield


def _deferred(run: Path, token: str, port: int) -> Any:
    """Return an application that is built in a thread while the server starts, because importing torch is slow.

    Until the application is built, ``early_app`` answers the requests that need no torch. If it cannot be built, every
    other request is answered by the reason.
    """
    from cubicflow.explore.early_app import early_app

    picture = FirstPicture(run)
    early, answers = early_app(picture.answers, token, port)
    made: list[Any] = []
    ready, drawn = threading.Event(), threading.Event()

    def make() -> None:
        # An import slows the other threads down, so a kept picture is sent first.
        drawn.wait(LONGEST_WAIT if picture.answers else 0)
        try:
            from cubicflow.explore.app import Explorer, make_app

            explorer = Explorer(run, picture)
            explorer.warm_up()
            made.append(make_app(explorer, token, port))
        except Exception as error:
            LOG.exception("the page cannot start")
            made.append(_failed(f"the page cannot start: {type(error).__name__}: {error}", token, port))
        finally:
            ready.set()

    threading.Thread(target=make, name="cubicflow-explore-start", daemon=True).start()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        import asyncio

        if not ready.is_set() and answers(scope.get("path", "")):
            await early(scope, receive, send)
            if scope["path"] == LAST_ROUTE:
                drawn.set()
            return
        drawn.set()
        while not ready.is_set():
            await asyncio.sleep(0.01)
        try:
            await made[0](scope, receive, send)
        except Exception:
            LOG.exception("a request failed")  # uvicorn answers with status 500, and its own log is off
            raise

    return app


def _failed(said: str, token: str, port: int) -> Any:
    """Return an application that shows the page, and answers everything else by an error."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Mount

    from cubicflow.explore.early_app import page_routes
    from cubicflow.explore.guard import Guard

    return Guard(Starlette(routes=[*page_routes(), Mount("/api", JSONResponse({"error": said}, 500))]), token, port)
