"""The part of the application that needs no torch: the files of the page, and the overview if it is cached.

This part answers while torch is imported. All other requests wait for the whole application.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from cubicflow.explore.guard import Guard

STATIC = Path(__file__).with_name("static")


def page_routes() -> list[BaseRoute]:
    """Return the routes of the page and its files."""

    async def page(_: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    return [Route("/", page), Mount("/static", StaticFiles(directory=STATIC))]


def early_app(kept: Mapping[str, bytes], token: str, port: int) -> tuple[Guard, Callable[[str], bool]]:
    """Return the application, and a function that says whether it answers a path."""

    def route(name: str, content: bytes) -> Route:
        async def answer(_: Request) -> Response:
            return Response(content, media_type="application/octet-stream")

        return Route(f"/api/{name}", answer)

    def answers(path: str) -> bool:
        return path == "/" or path.startswith("/static/") or path.removeprefix("/api/") in kept

    routes = [*page_routes(), *(route(name, content) for name, content in kept.items())]
    return Guard(Starlette(routes=routes), token, port), answers


def failed_app(reason: str, token: str, port: int) -> Guard:
    """Return an application that shows the page, and answers everything else by the reason of a failure."""
    routes = [*page_routes(), Mount("/api", JSONResponse({"error": reason}, 500))]
    return Guard(Starlette(routes=routes), token, port)
