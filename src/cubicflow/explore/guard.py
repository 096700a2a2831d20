"""Who may ask: this machine's browser, with the token, from this page.

Every request needs the Host of this server, so that no name that somebody points to 127.0.0.1 will do, and the token:
in the address at first, then in a cookie that scripts cannot read and other sites' pages do not send. A request with an
Origin needs this one; one that is not a GET needs a header that a page of another origin cannot send unasked.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

TOKEN = "token"  # noqa: S105 - the name of a parameter
ASKED = b"x-cubicflow"
POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
REFUSED = "This page is for whoever started it: open the address that cubicflow explore printed, with its token.\n"


class Guard:
    """An ASGI application in front of another one."""

    def __init__(self, app: Any, token: str, port: int) -> None:
        self.app, self.token, self.port = app, token, port
        self.cookie = f"cubicflow-{port}"
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def guarded(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
            await send(message)

        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if (wrong := self._wrong(scope, headers)) is not None:
            await _answer(guarded, *wrong)
            return
        given = parse_qs(scope["query_string"].decode("latin-1")).get(TOKEN, [""])[0]
        if given and self._is_token(given) and scope["path"] == "/" and scope["method"] == "GET":
            cookie = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            await _answer(guarded, 303, "", [(b"location", b"/"), (b"set-cookie", cookie.encode())])
            return
        if not self._is_token(given) and not self._is_token(self._cookie(headers)):
            await _answer(guarded, 403, REFUSED)
            return
        await self.app(scope, receive, guarded)

    def _wrong(self, scope: Mapping[str, Any], headers: Mapping[bytes, str]) -> tuple[int, str] | None:
        if headers.get(b"host", "") not in self.hosts:
            return 421, "This server has another name.\n"
        origin = headers.get(b"origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            return 403, "Pages of other origins are not answered.\n"
        if headers.get(b"sec-fetch-site") in ("cross-site", "same-site") and scope["path"] != "/":
            return 403, "Pages of other origins are not answered.\n"
        if scope["method"] not in ("GET", "HEAD") and ASKED not in headers:
            return 403, "This request was not made by the page.\n"
        return None

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _cookie(self, headers: Mapping[bytes, str]) -> str:
        try:
            found = SimpleCookie(headers.get(b"cookie", "")).get(self.cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value


async def _answer(send: Any, status: int, text: str, headers: Any = ()) -> None:
    about = [(b"content-type", b"text/plain; charset=utf-8"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": text.encode()})
