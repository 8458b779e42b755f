"""Lines of a file descriptor without blocking the event loop.

The read runs in a daemon thread on the bare descriptor. A person may never press Enter: with Python's own buffered stdin,
or a pool thread, the process could then not end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from threading import Thread

CHUNK_BYTES = 1 << 16


async def lines_of(descriptor: int, max_bytes: int) -> AsyncIterator[bytes]:
    """Each line without its end; what grows beyond `max_bytes` without one is given out as it is."""
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
