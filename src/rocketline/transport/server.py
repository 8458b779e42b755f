"""A listening socket whose connections share one router."""

from __future__ import annotations

import asyncio
import logging
import socket

from rocketline.errors import ConfigError
from rocketline.system.sockets import reuse_address
from rocketline.transport.accepting import Acceptor, Admission
from rocketline.transport.channel import DEFAULT_LIMITS, Channel, Limits
from rocketline.transport.router import Router
from rocketline.transport.server_config import ConnectionsConfig
from rocketline.transport.server_tls import ServerTls

log = logging.getLogger(__name__)

BACKLOG = 1024


class RemotingServer:
    """Serves a router on one address; an async context manager.

    Closing is graceful: no new connection is accepted, requests still waiting for their answer get `grace_s` to finish,
    then every connection is closed.
    """

    def __init__(
        self,
        router: Router,
        host: str,
        port: int,
        *,
        limits: Limits | None = None,
        max_connections: int = 10_000,
        channel_type: type[Channel] = Channel,
        connections: ConnectionsConfig | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self._router = router
        self._host = host
        self._port = port
        self.limits = limits or DEFAULT_LIMITS
        self._channel_type = channel_type
        self._tls = tls
        connections = connections or ConnectionsConfig()
        self._admission = Admission(max_connections, connections.per_address)
        self._acceptor = Acceptor(self._new_channel, self._admission, connections, tls, self.limits.idle_s)
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.channels: set[Channel] = set()

    @property
    def port(self) -> int:
        """The bound port, also when 0 was configured."""
        return self._port

    async def bind(self) -> None:
        """Bind the port without accepting connections yet; early callers wait in the backlog."""
        if not 0 <= self._port <= 65535:
            raise ConfigError(f"cannot listen on {self._host}:{self._port}: ports go from 0 to 65535")
        loop = asyncio.get_running_loop()
        # The loop of a simulated network makes its own listening sockets.
        listen = getattr(loop, "listening_socket", _listen)
        try:
            infos = await loop.getaddrinfo(
                self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            # We make the sockets: uvloop reports neither a failed bind nor a failed listen of a server that is not started.
            for family, address in dict.fromkeys((info[0], info[4]) for info in infos):
                self._sockets.append(listen(family, (address[0], self._port, *address[2:])))
                self._port = self._sockets[0].getsockname()[1]
        except OSError as error:
            self._close_sockets()
            raise ConfigError(
                f"cannot listen on {self._host}:{self._port}: {error.strerror or error}; "
                "is another server running there? Choose another port, or 0 for any free one"
            ) from error

    async def start(self) -> None:
        """Accept connections; binds first if needed."""
        if not self._sockets:
            await self.bind()
        loop = asyncio.get_running_loop()
        self._servers = [await loop.create_server(self._acceptor.accept, sock=listening) for listening in self._sockets]
        self._tasks = [loop.create_task(self._close_idle())]
        if self._tls is not None:
            self._tasks.append(loop.create_task(self._tls.watch()))

    async def close(self, grace_s: float = 1.0) -> None:
        for server in self._servers:
            server.close()
        self._close_sockets()
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
        for server in self._servers:
            await server.wait_closed()
        self._servers = []

    def _close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

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

    def _new_channel(self, router: Router | None) -> Channel:
        kind = self._channel_type if router is None else Channel
        return kind(router or self._router, self.limits, on_open=self._opened, on_close=self._closed)

    def _opened(self, channel: Channel) -> None:
        if problem := self._admission.admit(channel.remote_ip):
            log.warning("refusing %s: %s", channel.remote, problem)
            channel.abort()
            return
        self.channels.add(channel)

    def _closed(self, channel: Channel) -> None:
        if channel in self.channels:
            self.channels.discard(channel)
            self._admission.release(channel.remote_ip)

    async def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(10.0, self.limits.idle_s / 4))
            oldest = loop.time() - self.limits.idle_s
            for channel in list(self.channels):
                if not channel.is_open:
                    channel.abort()  # closing since the last round: its peer does not read what is left
                elif channel.last_active < oldest and not channel.waiting_count:
                    log.info("closing %s: idle for %g s", channel.remote, self.limits.idle_s)
                    channel.close()


def _listen(family: int, address: tuple[str | int, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        reuse_address(listening)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
