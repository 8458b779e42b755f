"""The page that Prometheus reads: a small HTTP server with two paths, /metrics and /health.

A request has at most a few kilobytes and must arrive within seconds; after one answer the connection is closed. The
number of connections is limited, and a scrape waits for the one before it, so that clients of the port cannot overload
the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple, Protocol

from rocketline.errors import ConfigError
from rocketline.metrics.exposition import OPENMETRICS, PROMETHEUS, wants_openmetrics

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 8192
MAX_CONNECTIONS = 32
HEAD_TIMEOUT_S = 5.0
WRITE_TIMEOUT_S = 30.0
TEXT = "text/plain; charset=utf-8"


class PageRequest(NamedTuple):
    method: str
    path: str
    accept: str


class PageAnswer(NamedTuple):
    status: HTTPStatus
    body: bytes = b""
    kind: str = TEXT


NewProtocol = Callable[[], asyncio.Protocol]


class PagePort(Protocol):
    """Begins connections, and closes those that have only begun."""

    def accept(self) -> asyncio.Protocol: ...

    def abort_all(self) -> None: ...


PageFront = Callable[[NewProtocol], PagePort]
"""Makes a port that decides which connections are plain and which TLS, as the server of the page does; what follows is the
page's protocol."""


class MetricsPage:
    """Serves between `start` and `close`."""

    def __init__(
        self,
        host: str,
        port: int,
        scrape: Callable[[bool], Awaitable[bytes]],
        problem: Callable[[], str],
        front: PageFront | None = None,
    ) -> None:
        """`scrape` makes the page, as OpenMetrics if True; `problem` returns the server's problem, or an empty text; without
        a `front` all connections are plain."""
        self._begins = None if front is None else front(self._new_protocol)
        self._host = host
        self._port = port
        self._scrape = scrape
        self._problem = problem
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    @property
    def address(self) -> str:
        """`host:port` it listens on."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    async def start(self) -> None:
        try:
            accept = self._new_protocol if self._begins is None else self._begins.accept
            self._server = await asyncio.get_running_loop().create_server(accept, self._host, self._port)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served on {self.address}: {error.strerror or error}; choose another "
                "metricsPromExporterPort (--metrics-port), or 0 for any free one"
            ) from error
        self._port = self._server.sockets[0].getsockname()[1]

    def _new_protocol(self) -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=MAX_HEAD_BYTES), self._serve)

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        if self._begins is not None:
            self._begins.abort_all()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            await self._answer(reader, writer)
        except (ConnectionError, TimeoutError) as error:
            log.debug("the reader of a metrics page left: %s", error)
        finally:
            self._open.discard(task)
            writer.transport.abort()  # everything was written, or the reader has left

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _read_head(reader)
        answer = request if isinstance(request, PageAnswer) else await self._answer_to(request)
        has_body = not isinstance(request, PageRequest) or request.method != "HEAD"
        head = (
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.kind}\r\n"
            f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + (answer.body if has_body else b""))
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    async def _answer_to(self, request: PageRequest) -> PageAnswer:
        if request.method not in ("GET", "HEAD"):
            return PageAnswer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n")
        if request.path == "/metrics":
            openmetrics = wants_openmetrics(request.accept)
            try:
                async with self._turn:
                    body = await self._scrape(openmetrics)
            except Exception:
                log.exception("a metrics page could not be made")
                return PageAnswer(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the log of the server\n")
            return PageAnswer(HTTPStatus.OK, body, OPENMETRICS if openmetrics else PROMETHEUS)
        if request.path in ("/health", "/healthz"):
            problem = self._problem()
            return PageAnswer(
                HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK, f"{problem or 'ok'}\n".encode()
            )
        return PageAnswer(HTTPStatus.NOT_FOUND, b"there are /metrics and /health\n")


async def _read_head(reader: asyncio.StreamReader) -> PageRequest | PageAnswer:
    """The request, or the answer to bytes that are not one."""
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return PageAnswer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError(f"closed after {len(error.partial)} bytes") from error
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return PageAnswer(HTTPStatus.BAD_REQUEST, b"not an HTTP request\n")
    headers = (line.partition(":") for line in lines[1:])
    accept = ",".join(value.strip() for name, _, value in headers if name.strip().lower() == "accept")
    return PageRequest(words[0], words[1].partition("?")[0], accept)
