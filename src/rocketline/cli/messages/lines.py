"""Reading lines of a file descriptor without blocking the event loop.

A daemon thread reads the descriptor itself. With Python's buffered stdin, or in a thread of a pool, the process could
not end while it waits for a person who never presses Enter.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from threading import Thread

CHUNK_BYTES = 1 << 16


async def lines_of(descriptor: int, max_bytes: int) -> AsyncIterator[bytes]:
    """Each line without its line end; a longer line than `max_bytes` is given in pieces."""
    rest = b""
    while chunk := await _read(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
        if len(rest) > max_bytes:
            yield rest
            rest = b""
    if rest:
        yield rest


async def _read(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        try:
            result: bytes | OSError = os.read(descriptor, CHUNK_BYTES)
        except OSError as error:
            result = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, result)

    def deliver(result: bytes | OSError) -> None:
        if arrived.done():
            return
        if isinstance(result, OSError):
            arrived.set_exception(result)
        else:
            arrived.set_result(result)

    Thread(target=read, daemon=True, name="stdin").start()
    return await arrived
