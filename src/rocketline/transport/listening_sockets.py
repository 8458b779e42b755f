"""Listening sockets of one address and port, bound before anything is accepted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from rocketline.errors import ConfigError
from rocketline.system.sockets import reuse_address

BACKLOG = 1024


class ListeningSockets:
    """Sockets for all addresses that a host name has."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        """The bound port, also when 0 was asked for."""
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []

    async def bind(self) -> None:
        """Bind the port without accepting connections yet; early callers wait in the backlog."""
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"cannot listen on {self.host}:{self.port}: ports go from 0 to 65535")
        loop = asyncio.get_running_loop()
        # The loop of a simulated network makes its own listening sockets.
        listen = getattr(loop, "listening_socket", _listen)
        try:
            infos = await loop.getaddrinfo(
                self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            # We make the sockets: uvloop reports neither a failed bind nor a failed listen of a server that is not started.
            for family, address in dict.fromkeys((info[0], info[4]) for info in infos):
                self._sockets.append(listen(family, (address[0], self.port, *address[2:])))
                self.port = self._sockets[0].getsockname()[1]
        except OSError as error:
            self.close_sockets()
            raise ConfigError(
                f"cannot listen on {self.host}:{self.port}: {error.strerror or error}; "
                "is another server running there? Choose another port, or 0 for any free one"
            ) from error

    async def start(self, new_protocol: Callable[[], asyncio.Protocol]) -> None:
        """Accept connections; binds first if needed."""
        if not self._sockets:
            await self.bind()
        loop = asyncio.get_running_loop()
        self._servers = [await loop.create_server(new_protocol, sock=listening) for listening in self._sockets]

    def stop_accepting(self) -> None:
        for server in self._servers:
            server.close()
        self.close_sockets()

    def close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    async def wait_closed(self) -> None:
        """After `stop_accepting`, when all connections have ended."""
        for server in self._servers:
            await server.wait_closed()
        self._servers = []

    async def close(self) -> None:
        self.stop_accepting()
        await self.wait_closed()


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
