"""A TCP proxy that makes a server slow, silent or dead, and well again.

async with SlowProxy("127.0.0.1:10911") as proxy:
    connect_to(proxy.address)
    proxy.delay_s = 0.6      # every answer comes so much later
    proxy.on_answer = tell   # called before every answer, for a test that has a clock of its own
    await proxy.die()        # connections are cut, new ones refused
    await proxy.revive()     # listens again, on the same port
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from rocketline.transport.client import split_address


class SlowProxy:
    """Stands before one server; only what the server answers is delayed."""

    def __init__(self, target: str) -> None:
        self._target = split_address(target)
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self._port = 0
        self.delay_s = 0.0
        self.on_answer: Callable[[], None] = lambda: None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self.revive()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()

    async def revive(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def die(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for relay in self._relays:
            relay.cancel()
        if self._relays:
            await asyncio.wait(self._relays)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.get_running_loop().create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, far_writer, lambda: 0.0, lambda: None))
                both.create_task(_pump(far_reader, writer, lambda: self.delay_s, lambda: self.on_answer()))
        except* OSError:
            pass
        finally:
            writer.transport.abort()
            far_writer.transport.abort()


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    delay_s: Callable[[], float],
    on_data: Callable[[], None],
) -> None:
    """Pass bytes on, each some time after it came, until one end closes; then both are closed."""
    loop = asyncio.get_running_loop()
    due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1024)

    async def write() -> None:
        while (item := await due.get())[1]:
            await asyncio.sleep(item[0] - loop.time())
            writer.write(item[1])
            await writer.drain()
        raise ConnectionResetError

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        while data := await reader.read(65536):
            on_data()
            await due.put((loop.time() + delay_s(), data))
        await due.put((0.0, b""))
