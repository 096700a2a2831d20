"""Access control: only a browser on this machine, with the token, from this page.

Every request needs the right Host header, so that another host name that resolves to 127.0.0.1 is refused. Every
request needs the token: first in the address, later in a cookie that scripts cannot read and that other sites do not
send. An Origin header must be the origin of this server. A request other than GET or HEAD needs a custom header, which
a page of another origin cannot send without a preflight.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

TOKEN = "token"  # noqa: S105 - the name of a parameter
PAGE_HEADER = b"x-cubicflow"
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
REFUSED = "The token is missing or wrong: open the address that cubicflow explore printed.\n"


class Guard:
    """An ASGI application that checks requests before it passes them to another application."""

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
            return 421, "The Host header is not the name of this server.\n"
        origin = headers.get(b"origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            return 403, "Requests from other origins are refused.\n"
        if headers.get(b"sec-fetch-site") in ("cross-site", "same-site") and scope["path"] != "/":
            return 403, "Requests from other origins are refused.\n"
        if scope["method"] not in ("GET", "HEAD") and PAGE_HEADER not in headers:
            return 403, "The request lacks the header that the page sends.\n"
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
