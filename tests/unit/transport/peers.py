"""The other end of a connection, played by hand: bytes in, commands out, and servers that misbehave on request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from tests.support.patience import PATIENCE_S

from rocketline.errors import RequestRejected
from rocketline.protocol.command import Command
from rocketline.protocol.connection import Connection, frame_bytes
from rocketline.transport import Channel, Limits, RemotingServer, Router

ECHO = 1
HOLD = 2
FAIL = 3
REJECT = 4
BLOAT = 5


class RawPeer:
    """A client of a server under test that writes whatever bytes it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._connection = Connection()
        self._received: list[Command] = []

    @staticmethod
    async def connect(port: int, receive_buffer: int | None = None) -> RawPeer:
        sock = socket.socket()
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        except OSError:
            sock.close()
            raise
        # A small limit: what the test does not read stays in the kernel and pushes back.
        return RawPeer(*await asyncio.open_connection(sock=sock, limit=64 * 1024))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(PATIENCE_S):
            await self._writer.drain()

    async def send_commands(self, *commands: Command) -> None:
        await self.send(b"".join(map(frame_bytes, commands)))

    async def receive(self) -> Command:
        async with asyncio.timeout(PATIENCE_S):
            while not self._received:
                data = await self._reader.read(64 * 1024)
                assert data, "the connection was closed"
                self._received += self._connection.receive(data)
        return self._received.pop(0)

    async def receive_all(self, count: int) -> list[Command]:
        return [await self.receive() for _ in range(count)]

    async def is_silent(self) -> bool:
        """Whether nothing was answered, told by a request sent last whose answer comes first."""
        await self.send_commands(request(ECHO, opaque=99_999))
        return (await self.receive()).opaque == 99_999

    async def read_until_closed(self) -> bytes:
        data = bytearray()
        async with asyncio.timeout(PATIENCE_S):
            try:
                while chunk := await self._reader.read(64 * 1024):
                    data += chunk
            except ConnectionError:
                pass
        return bytes(data)

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        self._writer.transport.abort()


class Scripted:
    """A router whose requests do what their code says; held ones wait for `release`."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.served: list[Command] = []
        self.held = asyncio.Semaphore(0)
        self.channels: list[Channel] = []
        self.router = Router(
            {ECHO: self._echo, HOLD: self._hold, FAIL: self._fail, REJECT: self._reject, BLOAT: self._bloat}
        )

    def _echo(self, channel: Channel, command: Command) -> Command:
        self.served.append(command)
        self.channels.append(channel)
        return command.reply(0, dict(command.ext or {}), command.body)

    def _hold(self, channel: Channel, command: Command) -> Awaitable[Command]:
        self.served.append(command)
        self.channels.append(channel)
        return self._held(command)

    async def _held(self, command: Command) -> Command:
        self.held.release()
        await self.release.wait()
        return command.reply(0, remark="late")

    def _fail(self, channel: Channel, command: Command) -> Command:
        raise ZeroDivisionError("a bug in a handler")

    def _reject(self, channel: Channel, command: Command) -> Command:
        raise RequestRejected(16, "not for you")

    def _bloat(self, channel: Channel, command: Command) -> Command:
        self.served.append(command)
        self.channels.append(channel)
        return command.reply(0, body=bytes(int((command.ext or {})["size"])))

    async def wait_held(self, count: int = 1) -> None:
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(count):
                await self.held.acquire()


def request(code: int, *, opaque: int = 0, flag: int = 0, body: bytes = b"", **ext: str) -> Command:
    return Command(code, ext, body, opaque=opaque, flag=flag)


@asynccontextmanager
async def serving(
    router: Router, limits: Limits | None = None, max_connections: int = 100, **more: Any
) -> AsyncIterator[RemotingServer]:
    async with RemotingServer(router, "127.0.0.1", 0, limits=limits, max_connections=max_connections, **more) as server:
        yield server


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something holds that no event tells; fails when it never does."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)
