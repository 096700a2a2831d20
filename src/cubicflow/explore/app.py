"""The routes of the page. A thread computes every answer; the answer is dropped if its browser leaves.

Importing torch takes seconds, so the answers are imported in a thread while the server starts. Until then the server
sends the files of the page, and a cached overview.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from cubicflow.explore.cached_overview import OVERVIEW, CachedOverview
from cubicflow.explore.guard import Guard
from cubicflow.explore.questions import RefusedError, one_line
from cubicflow.explore.threads import Worker

if TYPE_CHECKING:
    from cubicflow.explore.explorer import Explorer

STATIC = Path(__file__).with_name("static")
MOST_QUESTION = 1 << 16  # largest JSON request, in bytes
MOST_UPLOAD = 16 << 20  # largest upload, in bytes
LONGEST_WAIT = 3.0  # seconds that a cached overview is waited for before torch is imported
LOG = logging.getLogger(__name__)


class Api(NamedTuple):
    """A route of the API: the method of its requests, whether the slow thread answers, and the type of the answer."""

    method: str = "GET"
    is_slow: bool = False
    kind: str = "application/octet-stream"


API = {
    "run": Api(),
    "columns": Api(),
    "data": Api(),
    "points": Api(),
    "training": Api(),
    "score": Api(is_slow=True),
    "layers": Api(),
    "density": Api(),
    "what-if": Api("POST"),
    "sample": Api("POST", is_slow=True),
    "sample.csv": Api(is_slow=True, kind="text/csv; charset=utf-8"),
    "score-rows": Api("POST", is_slow=True),
    "images": Api("POST"),
    "path": Api("POST"),
}


class Opening:
    """The explorer of a run, which a thread imports and starts.

    An import slows the other threads down, so a cached overview is sent first.
    """

    def __init__(self, run: Path) -> None:
        self.run, self.cached, self.is_drawn = run, CachedOverview(run), threading.Event()
        self.explorer = Worker("cubicflow-explore-start").submit(self._open)

    def early(self, name: str) -> bytes | None:
        """Return a cached answer, as long as there is no explorer."""
        return None if self.explorer.done() else self.cached.answers.get(name)

    def _open(self) -> Explorer:
        if self.cached.answers:
            self.is_drawn.wait(LONGEST_WAIT)
        try:
            from cubicflow.explore.explorer import Explorer

            explorer = Explorer(self.run, self.cached)
        except Exception as error:
            LOG.exception("the page cannot start")
            raise RuntimeError(f"the page cannot start: {type(error).__name__}: {error}") from None
        explorer.fast.wake()  # opens the run before the first request
        return explorer


def make_app(opening: Opening, token: str, port: int) -> Guard:
    """Return the ASGI application: all routes behind the access control."""

    async def page(_: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def respond(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in API or request.method not in (API[name].method, "HEAD"):
            raise HTTPException(404 if name not in API else 405)
        if (content := opening.early(name)) is not None:
            drawn = BackgroundTask(opening.is_drawn.set) if name == OVERVIEW[-1] else None
            return Response(content, media_type=API[name].kind, background=drawn)
        opening.is_drawn.set()
        try:
            question = await _question(request, name)
            explorer = await asyncio.shield(asyncio.wrap_future(opening.explorer))
        except RefusedError as error:
            return JSONResponse({"error": str(error)}, 400)
        except RuntimeError as error:
            return JSONResponse({"error": one_line(error, opening.run)}, 500)
        return await _answered(explorer, name, question, request)

    routes = [Route("/", page), Mount("/static", StaticFiles(directory=STATIC))]
    return Guard(Starlette(routes=[*routes, Route("/api/{name}", respond, methods=["GET", "POST"])]), token, port)


async def _answered(explorer: Explorer, name: str, question: Mapping[str, Any], request: Request) -> Response:
    """Compute an answer in a thread, and return it. For an error, return its message without paths.

    The traceback of an unexpected error goes to the log, which the terminal shows. The answer is dropped when the
    browser leaves.
    """
    worker = explorer.slow if API[name].is_slow or question.get("refine") else explorer.fast
    answer = asyncio.create_task(worker.run(lambda: explorer.answer(name, question)))
    left = asyncio.create_task(_left(request))
    try:
        await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            return Response(status_code=204)  # nobody reads it
        content, state = answer.result()
        return Response(content, media_type=API[name].kind, headers={"x-cubicflow-run": state})
    except RefusedError as error:
        return JSONResponse({"error": str(error)}, 400)
    except Exception as error:
        LOG.exception("an answer failed")
        said = f"unexpected error: {type(error).__name__}: {one_line(error, explorer.path)}"
        return JSONResponse({"error": said}, 500)
    finally:
        answer.cancel()
        left.cancel()


async def _left(request: Request) -> None:
    """Wait until the browser has closed the connection of a request whose body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


# --- questions ---


async def _question(request: Request, name: str) -> Mapping[str, Any]:
    """Return the question of a request: the parameters of its address, a JSON object, or an uploaded file."""
    if API[name].method == "GET":
        return request.query_params
    if name == "score-rows":
        file = Path(request.query_params.get("name", "").replace("\\", "/")).name[:100] or "rows.csv"
        pasted = request.query_params.get("pasted") == "1"
        return {"content": await _body(request, MOST_UPLOAD), "name": file, "pasted": pasted}
    try:
        question = json.loads(await _body(request, MOST_QUESTION))
    except (ValueError, RecursionError):
        question = None
    if not isinstance(question, dict):
        raise RefusedError("the request must be a JSON object")
    return question


async def _body(request: Request, most: int) -> bytes:
    """Read the body of a request. Raises HTTPException as soon as the body is larger than ``most`` bytes."""
    found = bytearray()
    try:
        async for chunk in request.stream():
            found += chunk
            if len(found) > most:
                raise HTTPException(413, f"the request is larger than the limit of {most >> 20 or 1} MiB; send less")
    except ClientDisconnect:
        raise HTTPException(400) from None  # nobody reads the answer
    return bytes(found)
