"""A TCP proxy on one link of a group: each direction can be held (bytes wait, nobody is told) or delayed, and all be cut.

Direction `up` is from who connected to who listens. `only` names members (by the hello of a replica, which begins each of
its connections) for whom a hold counts; without it a hold counts for everybody. `rewrite` replaces some bytes by others
of the same length on the way up, so that an address that somebody registers becomes that of a proxy.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import Self

HELLO = b"\xffRLHELO\x01"
_MEMBER = struct.Struct(">q")


class _Direction:
    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.only: frozenset[int] = frozenset()
        self.delay_s = 0.0

    async def passed(self, member: int) -> None:
        """Wait until bytes of this member may pass."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        while not self.open.is_set() and (not self.only or member in self.only):
            await self.open.wait()

    def hold(self, only: frozenset[int]) -> None:
        self.only = only
        self.open.clear()

    def release(self) -> None:
        self.open.set()


class Link:
    """Listens at `listen` and passes everything on to `target`; an async context manager."""

    def __init__(
        self,
        target: tuple[str, int],
        listen: tuple[str, int] = ("127.0.0.1", 0),
        rewrite: tuple[bytes, bytes] = (b"", b""),
    ) -> None:
        assert len(rewrite[0]) == len(rewrite[1])
        self._target, self._listen, self._rewrite = target, listen, rewrite
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self.up, self.down = _Direction(), _Direction()

    @property
    def address(self) -> str:
        return f"{self._listen[0]}:{self._listen[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, *self._listen)
        self._listen = self._server.sockets[0].getsockname()[:2]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        if self._relays:
            await asyncio.wait(self._relays)

    def hold(self, *, up: bool = True, down: bool = True, only: frozenset[int] = frozenset()) -> None:
        """Let nothing pass; connections stay, and new ones can be made."""
        if up:
            self.up.hold(only)
        if down:
            self.down.hold(only)

    def release(self) -> None:
        """Let everything pass that was held, and whatever comes."""
        self.up.release()
        self.down.release()

    def cut(self) -> None:
        """Break all connections; bytes on the way are lost."""
        for relay in self._relays:
            relay.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.get_running_loop().create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_writer: asyncio.StreamWriter | None = None
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            member = [0]
            pumps = [
                asyncio.ensure_future(_pump(reader, far_writer, self.up, member, self._rewrite)),
                asyncio.ensure_future(_pump(far_reader, writer, self.down, member)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass
        finally:
            writer.transport.abort()
            if far_writer is not None:
                far_writer.transport.abort()


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    direction: _Direction,
    member: list[int],
    rewrite: tuple[bytes, bytes] = (b"", b""),
) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            if data.startswith(HELLO) and len(data) >= 16:
                member[0] = _MEMBER.unpack_from(data, 8)[0]
            if rewrite[0]:
                data = data.replace(*rewrite)
            await direction.passed(member[0])
            writer.write(data)
            await writer.drain()
