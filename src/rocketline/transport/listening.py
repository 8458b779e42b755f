"""A listening socket: its connections are accepted, limited, and closed with it, whatever protocol they speak."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from rocketline.transport.accepting import Acceptor, Admission
from rocketline.transport.limits import SLOWEST_BYTES, Drips
from rocketline.transport.listening_sockets import ListeningSockets
from rocketline.transport.served import Served
from rocketline.transport.server_config import ConnectionsConfig
from rocketline.transport.server_tls import ServerTls

log = logging.getLogger(__name__)

C = TypeVar("C", bound=Served)


class ListeningServer(Generic[C]):
    """Serves connections on one address; an async context manager.

    Closing is graceful: no new connection is accepted, requests still waiting for their answer get `grace_s` to finish,
    then every connection is closed.
    """

    def __init__(
        self,
        host: str,
        port: int,
        new_channel: Callable[[], C],
        refuse_plain: Callable[[int], C | None],
        *,
        idle_s: float,
        max_connections: int = 10_000,
        connections: ConnectionsConfig | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """`new_channel` and `refuse_plain` make channels that call `opened` and `closed`."""
        self._sockets = ListeningSockets(host, port)
        self._tls = tls
        self._idle_s = idle_s
        self._drips = Drips(idle_s)
        connections = connections or ConnectionsConfig()
        self._admission = Admission(max_connections, connections.per_address)
        self._acceptor = Acceptor(new_channel, refuse_plain, self._admission, connections, tls, idle_s)
        self._tasks: list[asyncio.Task[None]] = []
        self.channels: set[C] = set()

    @property
    def port(self) -> int:
        """The bound port, also when 0 was configured."""
        return self._sockets.port

    async def bind(self) -> None:
        """Bind the port without accepting connections yet; early callers wait in the backlog."""
        await self._sockets.bind()

    async def start(self) -> None:
        """Accept connections; binds first if needed."""
        await self._sockets.start(self._acceptor.accept)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._close_idle())]
        if self._tls is not None:
            self._tasks.append(loop.create_task(self._tls.watch()))

    async def close(self, grace_s: float = 1.0) -> None:
        self._sockets.stop_accepting()
        for task in self._tasks:
            task.cancel()
        self._acceptor.abort_arrivals()
        deadline = asyncio.get_running_loop().time() + grace_s
        while any(channel.waiting_count for channel in self.channels):
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(0.01)
        for channel in list(self.channels):
            channel.close()
        await self._wait_channels_closed(grace_s)
        await self._sockets.wait_closed()

    async def _wait_channels_closed(self, grace_s: float) -> None:
        pending = [asyncio.ensure_future(channel.wait_closed()) for channel in list(self.channels)]
        if pending:
            _, late = await asyncio.wait(pending, timeout=grace_s)
            for waiter in late:
                waiter.cancel()
        for channel in list(self.channels):
            channel.abort()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def opened(self, channel: C) -> None:
        if problem := self._admission.admit(channel.remote_ip):
            log.warning("refusing %s: %s", channel.remote, problem)
            channel.abort()
            return
        self.channels.add(channel)

    def closed(self, channel: C) -> None:
        if channel in self.channels:
            self.channels.discard(channel)
            self._drips.forget(channel)
            self._admission.release(channel.remote_ip)

    async def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(10.0, self._idle_s / 4))
            oldest = loop.time() - self._idle_s
            for channel in list(self.channels):
                if not channel.is_open:
                    channel.abort()  # closing since the last round: its peer does not read what is left
                elif channel.last_active < oldest and not channel.waiting_count:
                    log.info("closing %s: idle for %g s", channel.remote, self._idle_s)
                    channel.close()
                elif self._drips.is_dripping(channel, channel.unfinished_bytes, loop.time()):
                    log.warning(
                        "closing %s: its frame grew by less than %d bytes in %g s",
                        channel.remote,
                        SLOWEST_BYTES,
                        self._idle_s,
                    )
                    channel.abort()
