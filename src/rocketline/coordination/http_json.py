"""JSON over HTTP/1.1, as much of it as etcd's gateway needs: POST an object, get one back, or a stream of them.

A connection is used for one request at a time and kept for the next. All sizes are bounded: the other side is trusted with
the record, not with this process's memory.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

MAX_BODY_BYTES = 4 << 20
MAX_HEAD_BYTES = 64 << 10


class HttpFailed(Exception):
    """No usable answer; the text says why."""


@dataclass(frozen=True)
class Endpoint:
    host: str
    port: int
    tls: Callable[[], ssl.SSLContext] | None = None
    """Gives the context for a new connection."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class HttpConnection:
    def __init__(self, endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.endpoint = endpoint
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, endpoint: Endpoint) -> HttpConnection:
        context = None if endpoint.tls is None else endpoint.tls()
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context, limit=MAX_BODY_BYTES)
        return cls(endpoint, reader, writer)

    def close(self) -> None:
        self._writer.close()

    async def post(self, path: str, value: object, token: str = "") -> tuple[int, Any]:
        """(status, decoded body)."""
        self._send(path, value, token)
        status, headers = await self._head()
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join([piece async for piece in self._chunks(MAX_BODY_BYTES)])
        else:
            body = await self._reader.readexactly(_size(headers))
        return status, _decoded(body)

    async def stream(self, path: str, value: object, token: str = "") -> AsyncGenerator[Any, None]:
        """The objects of an answer that does not end: one on each line."""
        self._send(path, value, token)
        status, headers = await self._head()
        if status != 200 or headers.get("transfer-encoding") != "chunked":
            raise HttpFailed(f"{self.endpoint} answered {path} with status {status}")
        pending = b""
        async for piece in self._chunks(None):
            *lines, pending = (pending + piece).split(b"\n")
            if len(pending) > MAX_BODY_BYTES:
                raise HttpFailed(f"{self.endpoint} sent a line without an end")
            for line in lines:
                if line.strip():
                    yield _decoded(line)

    def _send(self, path: str, value: object, token: str) -> None:
        body = json.dumps(value, separators=(",", ":")).encode()
        head = [
            f"POST {path} HTTP/1.1",
            f"Host: {self.endpoint}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        if token:
            head.append(f"Authorization: {token}")
        self._writer.write("\r\n".join([*head, "", ""]).encode() + body)

    async def _head(self) -> tuple[int, dict[str, str]]:
        lines: list[str] = []
        size = 0
        while line := (await self._reader.readline()).rstrip(b"\r\n"):
            size += len(line)
            if size > MAX_HEAD_BYTES:
                raise HttpFailed(f"{self.endpoint} sent too long a head")
            lines.append(line.decode("latin-1"))
        first = lines[0].split(" ", 2) if lines else []
        if len(first) < 2 or not first[0].startswith("HTTP/1.") or not first[1].isdecimal():
            raise HttpFailed(
                f"{self.endpoint} does not speak HTTP" if lines else f"{self.endpoint} closed the connection"
            )
        headers = dict(line.lower().split(":", 1) for line in lines[1:] if ":" in line)
        return int(first[1]), {key.strip(): text.strip() for key, text in headers.items()}

    async def _chunks(self, limit: int | None) -> AsyncGenerator[bytes, None]:
        total = 0
        while True:
            line = await self._reader.readline()
            try:
                size = int(line.split(b";")[0], 16)
            except ValueError as error:
                raise HttpFailed(f"{self.endpoint} closed the connection") from error
            total += size
            if size > MAX_BODY_BYTES or (limit is not None and total > limit):
                raise HttpFailed(f"{self.endpoint} sent more than {MAX_BODY_BYTES} bytes")
            piece = await self._reader.readexactly(size)
            await self._reader.readexactly(2)
            if not size:
                return
            yield piece


def _size(headers: dict[str, str]) -> int:
    text = headers.get("content-length", "")
    if not text.isdecimal() or int(text) > MAX_BODY_BYTES:
        raise HttpFailed(f"an answer of {text or 'unknown'} bytes")
    return int(text)


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise HttpFailed(f"an answer that is not JSON: {body[:80]!r}") from error
