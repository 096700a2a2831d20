"""Servers of pages, requests to them, and a tab of a browser."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from cubicflow.explore.app import Opening, make_app
from cubicflow.explore.explorer import Explorer
from cubicflow.explore.framed import unframed

TOKEN = "a-token-for-tests"


class Page(NamedTuple):
    """A page that a server serves."""

    port: int
    explorer: Explorer

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def address(self) -> str:
        return f"{self.root}?token={TOKEN}"


@contextmanager
def serving(run: Path) -> Iterator[Page]:
    """Serve the page of a run in a thread of this process."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        port = listening.getsockname()[1]
        opening = Opening(run)
        explorer = opening.explorer.result()
        server = uvicorn.Server(
            uvicorn.Config(
                make_app(opening, TOKEN, port), log_level="critical", lifespan="off", timeout_graceful_shutdown=0
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield Page(port, explorer)
        server.should_exit = server.force_exit = True
        thread.join(300)
        explorer.close()  # end the worker threads: the interpreter must not exit while a thread runs a kernel


class Tab:
    """A tab that records its errors."""

    def __init__(self, browser: Any, width: int = 1280) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, accept_downloads=True)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on(
            "console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("requestfailed", self._failed)
        self.answers: list[Any] = []  # of What if
        self.page.on("response", lambda found: self.answers.append(found) if "/api/what-if" in found.url else None)

    def _failed(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # the browser aborts requests of a view that is closed early
            self.wrong.append(f"{request.url} failed: {request.failure}")

    def open(self, page: Page, view: str) -> Any:
        """Show a view, and wait until it is drawn. The first view of a page loads the page."""
        if not self.page.url.startswith(page.root):
            self.page.goto(page.address)
        self.page.goto(f"{page.root}#/{view}")
        name = view.partition("?")[0]
        self.page.wait_for_selector(f"main[data-view='{name}']")
        return self.settled()

    def settled(self) -> Any:
        """Wait until the view has drawn all answers that it asked for."""
        self.page.wait_for_selector("main:not([data-ready='0']):not([aria-busy])")
        return self.page

    def masses(self, page: Page, name: str) -> dict[str, float]:
        """Return the masses of a column's words in the last answer of What if. The page shows them, rounded."""
        columns = unframed(ask(page, "/api/columns")[1])[0]["columns"]
        answer = unframed(self.settled() and self.answers[-1].body())[1]
        (found,) = (
            dict(zip([*column["bars"], "missing"], masses.tolist(), strict=False))
            for column, masses in zip(columns, answer["masses"], strict=True)
            if column["name"] == name
        )
        card = self.page.locator("article", has=self.page.get_by_role("heading", name=name, exact=True))
        words, shares = (card.locator(kind).all_inner_texts() for kind in (".word", ".share"))
        for word, share in zip(words, shares, strict=True):
            assert abs(float(share.removesuffix(" %").removeprefix("<")) / 100 - found[word]) <= 0.0051
        return found


def ask(page: Page, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    """Send one request. The token is in the cookie unless a header replaces the cookie."""
    given = {"Host": f"127.0.0.1:{page.port}", "Cookie": f"cubicflow-{page.port}={TOKEN}"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        given.setdefault("X-Cubicflow", "1")
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=300)
    connection.request("GET" if body is None else "POST", path, body, {k: v for k, v in given.items() if v})
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.headers
    connection.close()
    return found


def error_of(answer: tuple[int, bytes, Any]) -> str:
    said: str = json.loads(answer[1])["error"]
    assert "\n" not in said
    return said
