"""A listening socket whose connections share one router."""

from __future__ import annotations

import asyncio
import logging

from rocketline.errors import ConfigError
from rocketline.transport.channel import Channel, Limits
from rocketline.transport.router import Router

log = logging.getLogger(__name__)


class RemotingServer:
    """Serves a router on one address; an async context manager.

    Closing is graceful: no new connection is accepted, requests still waiting for their answer get `grace_s` to finish,
    then every connection is closed.
    """

    def __init__(
        self, router: Router, host: str, port: int, *, limits: Limits | None = None, max_connections: int = 10_000
    ) -> None:
        self._router = router
        self._host = host
        self._port = port
        self._limits = limits or Limits()
        self._max_connections = max_connections
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self.channels: set[Channel] = set()

    @property
    def port(self) -> int:
        """The port really bound, also when 0 was asked for."""
        return self._port

    async def bind(self) -> None:
        """Take the port without accepting anyone yet: the port is known, early callers are refused."""
        loop = asyncio.get_running_loop()
        if not 0 <= self._port <= 65535:  # uvloop would take 70000 for 4464
            raise ConfigError(f"cannot listen on {self._host}:{self._port}: ports go from 0 to 65535")
        try:
            self._server = await loop.create_server(
                self._accept, self._host, self._port, backlog=1024, start_serving=False
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {self._host}:{self._port}: {error.strerror or error}; "
                "is another server running there? Choose another port, or 0 for any free one"
            ) from error
        self._port = self._server.sockets[0].getsockname()[1]

    async def start(self) -> None:
        """Accept connections; binds first when that was not done."""
        if self._server is None:
            await self.bind()
        assert self._server is not None
        await self._server.start_serving()
        self._sweeper = asyncio.get_running_loop().create_task(self._close_idle())

    async def close(self, grace_s: float = 1.0) -> None:
        if self._server is None:
            return
        self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        deadline = asyncio.get_running_loop().time() + grace_s
        while any(channel.waiting_count for channel in self.channels):
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(0.01)
        for channel in list(self.channels):
            channel.close()
        await self._wait_channels_closed(grace_s)
        await self._server.wait_closed()
        self._server = None

    async def _wait_channels_closed(self, grace_s: float) -> None:
        pending = [asyncio.ensure_future(channel.wait_closed()) for channel in list(self.channels)]
        if pending:
            _, late = await asyncio.wait(pending, timeout=grace_s)
            for waiter in late:
                waiter.cancel()
        for channel in list(self.channels):
            channel.abort()

    async def __aenter__(self) -> RemotingServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _accept(self) -> Channel:
        return Channel(self._router, self._limits, on_open=self._opened, on_close=self.channels.discard)

    def _opened(self, channel: Channel) -> None:
        if len(self.channels) >= self._max_connections:
            log.warning("refusing %s: %d connections are open, the limit", channel.remote, len(self.channels))
            channel.abort()
            return
        self.channels.add(channel)

    async def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(10.0, self._limits.idle_s / 4))
            oldest = loop.time() - self._limits.idle_s
            for channel in list(self.channels):
                if not channel.is_open:
                    channel.abort()  # closing since the last round: its peer does not read the rest
                elif channel.last_active < oldest and not channel.waiting_count:
                    log.info("closing %s: idle for %g s", channel.remote, self._limits.idle_s)
                    channel.close()
