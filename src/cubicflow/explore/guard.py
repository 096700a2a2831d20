"""Access control: only a browser on this machine, with the token, from this page.

Every request needs the right Host header, so that another host name that resolves to 127.0.0.1 is refused. Every
request needs the token: first in the address, later in a cookie that scripts cannot read and that other sites do not
send. An Origin header must be the origin of this server. A request other than GET or HEAD needs a custom header, which
a page of another origin cannot send without a preflight.
"""

from __future__ import annotations

import hmac

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "token"  # noqa: S105 - the name of a parameter
PAGE_HEADER = "x-cubicflow"
POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'"
)
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
NEEDED = "The token is missing or wrong: open the address that cubicflow explore printed."


class Guard:
    """An ASGI application that checks requests before it passes them to another application."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token, self.cookie = app, token, f"cubicflow-{port}"
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request, answer, added = Request(scope), self.app, HEADERS
        given = request.query_params.get(TOKEN, "")
        if (refused := self._refused(request)) is not None:
            answer = PlainTextResponse(f"{refused[1]}\n", refused[0])
        elif self._is_token(given) and scope["path"] == "/":
            cookie = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            added = (*HEADERS, (b"set-cookie", cookie.encode()))  # the page takes the token out of the address
        elif not self._is_token(given) and not self._is_token(request.cookies.get(self.cookie, "")):
            answer = PlainTextResponse(f"{NEEDED}\n", 403)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *added]}
            await send(message)

        await answer(scope, receive, guarded)

    def _refused(self, request: Request) -> tuple[int, str] | None:
        headers = request.headers
        if headers.get("host", "") not in self.hosts:
            return 421, "The Host header is not the name of this server."
        is_foreign = headers.get("origin", "") not in {"", *(f"http://{host}" for host in self.hosts)}
        if is_foreign or (
            headers.get("sec-fetch-site") in ("cross-site", "same-site") and request.scope["path"] != "/"
        ):
            return 403, "Requests from other origins are refused."
        if request.method not in ("GET", "HEAD") and PAGE_HEADER not in headers:
            return 403, "The request lacks the header that the page sends."
        return None

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())
