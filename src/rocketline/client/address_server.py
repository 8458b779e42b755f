"""Name servers from an address server: a page with `host:port`, several separated by ';', asked for over HTTP.

Java's clients ask a built-in host when no name server is given. Here an address server is asked only when its URL is given
instead of name servers: `Producer("http://addresses.example/rocketmq/nsaddr", ...)`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from urllib.parse import urlsplit

from rocketline.client.identity import parse_name_servers
from rocketline.errors import ConfigError, TransportError

NAMESRV_VARIABLE = "NAMESRV_ADDR"
MAX_ANSWER_BYTES = 64 * 1024
REFRESH_S = 120.0
"""Pause between two questions, as with Java's clients."""


def is_address_server(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def checked_servers(name_servers: str | Sequence[str] | None) -> tuple[str, ...]:
    """Name servers, or the one address server that knows them; ConfigError says what is wrong with either.

    None: those of the environment variable that Java's clients and tools use too.
    """
    if name_servers is None:
        name_servers = os.environ.get(NAMESRV_VARIABLE)
        if not name_servers:
            raise ConfigError(
                "no name server given: name one, for example Producer('127.0.0.1:9876', group='shop'), or set the "
                f"environment variable {NAMESRV_VARIABLE}, for example {NAMESRV_VARIABLE}=127.0.0.1:9876"
            )
    if not isinstance(name_servers, str) or not is_address_server(name_servers):
        return parse_name_servers(name_servers)
    try:
        parts = urlsplit(name_servers)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"address server {name_servers!r}: {error}") from error
    if not host or not name_servers.isascii() or any(character <= " " for character in name_servers):
        raise ConfigError(f"address server {name_servers!r}: http://host[:port]/path expected")
    return (name_servers,)


async def ask_address_server(url: str, timeout_s: float) -> tuple[str, ...]:
    """The name servers it knows; TransportError with its address and the reason when they cannot be had."""
    try:
        async with asyncio.timeout(timeout_s):
            answer = await _get(url)
    except TimeoutError:
        raise TransportError(f"address server {url} did not answer within {timeout_s:g} s") from None
    except OSError as error:
        raise TransportError(f"address server {url}: {error}") from error
    head, _, page = answer.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].decode("latin-1")
    if status.split(" ")[1:2] != ["200"]:
        raise TransportError(f"address server {url} answered {status or 'nothing'!r}: a page with status 200 is needed")
    try:
        return parse_name_servers(page.decode("utf-8", "replace").strip())
    except ConfigError as error:
        raise TransportError(f"address server {url}: {error}") from error


async def _get(url: str) -> bytes:
    parts = urlsplit(url)
    assert parts.hostname is not None
    is_secure = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port or (443 if is_secure else 80), ssl=is_secure or None
    )
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        # HTTP/1.0: the page ends where the connection does.
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: text/plain\r\n\r\n".encode("ascii"))
        answer = bytearray()
        while chunk := await reader.read(MAX_ANSWER_BYTES):
            answer += chunk
            if len(answer) > MAX_ANSWER_BYTES:
                raise OSError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
        return bytes(answer)
    finally:
        writer.close()
