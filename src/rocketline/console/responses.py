"""Responses: headers of all, compression, streams that end with their viewer, files."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
DOWNLOAD_POLICY = "default-src 'none'; sandbox"
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""Of every response that does not say otherwise."""
HSTS = "max-age=31536000"
"""Only where the console itself has the certificate: behind a proxy it would bind all else that the proxy's host serves."""
LEAST_COMPRESSED = 1000
EVENTS = "text/event-stream"
STAYS_EVERY_S = 1.0
"""How often it is asked whether a viewer may go on."""


def plain_path(path: str, root_path: str = "") -> str:
    """The path without that of a proxy, of which some take it off and others leave it on.

    Slashes at both ends do not matter: a link to `//host/` would lead to another site, and a redirect to the path with one
    slash more or less would need the name and the scheme that a proxy is reached by.

    >>> plain_path("/mq/c/shop/topics/", "/mq"), plain_path("/mq", "/mq"), plain_path("/c/shop")
    ('/c/shop/topics', '/', '/c/shop/')
    >>> plain_path("//evil.example/x")
    '/evil.example/x'
    """
    path = "/" + path.strip("/")
    if root_path and (path == root_path or path.startswith(root_path + "/")):
        path = path[len(root_path) :] or "/"
    is_overview = path.startswith("/c/") and path.count("/") == 2
    return f"{path}/" if is_overview else path


class SafeHeaders:
    """Gives every response the headers above, and makes the path one that routes know."""

    def __init__(self, app: ASGIApp, root_path: str, *, uses_tls: bool) -> None:
        self._app = app
        self._root_path = root_path
        self._headers = {**HEADERS, "strict-transport-security": HSTS} if uses_tls else HEADERS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope = {**scope, "path": plain_path(scope["path"], self._root_path)}

        async def send_safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                more = [
                    (key.encode(), value.encode()) for key, value in self._headers.items() if key.encode() not in given
                ]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self._app(scope, receive, send_safe)


def respond(
    request: Request, body: bytes, kind: str, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """A response, compressed if the browser takes that."""
    headers = {"vary": "Accept-Encoding, Accept-Language, Cookie", **(headers or {})}
    if len(body) >= LEAST_COMPRESSED and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, 4, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, status, headers, media_type=kind)


@dataclass
class Going:
    """What a stream has while it goes on."""

    stays: Callable[[], bool]
    """Whether its viewer may still see it."""
    work: ExitStack
    """What it holds of the limits."""


class Streaming(Response):
    """Sends chunks until they end, the viewer leaves or may see no more; then the source is closed with all it owns."""

    def __init__(self, chunks: AsyncIterator[bytes], kind: str, headers: dict[str, str], going: Going) -> None:
        self._chunks = chunks
        self._going = going
        self.status_code = 200
        self.background = None
        self.body = b""
        self.media_type = kind
        self.init_headers(headers)

    def init_headers(self, headers: Any = None) -> None:
        super().init_headers(headers)
        self.raw_headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._going.work:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            is_cut = await self._run(receive, send)
            # A file that was cut off must not look like a whole one: its connection just ends.
            if is_cut and self.media_type == EVENTS:
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _run(self, receive: Receive, send: Send) -> bool:
        """Send until there is no more to send, or nobody to send it to; whether the viewer was cut off."""
        sending, leaving, forbidden = (
            asyncio.create_task(part) for part in (self._send(send), _gone(receive), self._forbidden())
        )
        try:
            done, _ = await asyncio.wait({sending, leaving, forbidden}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving, forbidden):
                task.cancel()
            results = await asyncio.gather(sending, leaving, forbidden, return_exceptions=True)
            close = getattr(self._chunks, "aclose", None)
            if close is not None:
                await close()
        failures = [item for item in results if isinstance(item, Exception) and not isinstance(item, OSError)]
        if failures:
            raise failures[0]
        return done == {forbidden}

    async def _forbidden(self) -> None:
        while self._going.stays():  # noqa: ASYNC110 (a users file says nothing when it changes)
            await asyncio.sleep(STAYS_EVERY_S)

    async def _send(self, send: Send) -> None:
        async for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def event_stream(events: AsyncIterator[bytes], going: Going) -> Streaming:
    return Streaming(events, EVENTS, {"x-accel-buffering": "no"}, going)


def download(chunks: AsyncIterator[bytes], name: str, kind: str, going: Going) -> Streaming:
    """A file. A browser saves it and never shows it, whatever it contains."""
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "content-security-policy": DOWNLOAD_POLICY,
    }
    return Streaming(chunks, kind, headers, going)
