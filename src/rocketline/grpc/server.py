"""A listening socket for gRPC clients, with TLS and without on one port."""

from __future__ import annotations

import asyncio

from rocketline.grpc.channel import GrpcChannel, Services
from rocketline.http2 import Http2Limits
from rocketline.transport.listening import ListeningServer
from rocketline.transport.server_config import ConnectionsConfig
from rocketline.transport.server_tls import ServerTls

IDLE_S = 120.0
"""A connection without calls is closed after this long, as Apache's proxy does."""
SWEEP_S = 5.0


class GrpcServer(ListeningServer[GrpcChannel]):
    """Serves methods by path; an async context manager."""

    def __init__(
        self,
        services: Services,
        host: str,
        port: int,
        *,
        limits: Http2Limits | None = None,
        max_connections: int = 10_000,
        connections: ConnectionsConfig | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.services = services
        self._http2_limits = limits or Http2Limits()
        super().__init__(
            host,
            port,
            self._new_channel,
            lambda first: None,
            idle_s=IDLE_S,
            max_connections=max_connections,
            connections=connections,
            tls=tls,
        )

    async def start(self) -> None:
        await super().start()
        self._tasks.append(asyncio.get_running_loop().create_task(self._sweep()))

    async def close(self, grace_s: float = 1.0) -> None:
        """Clients are told at once, and have the time of grace to go elsewhere."""
        for channel in list(self.channels):
            channel.say_goodbye()
        await super().close(grace_s)

    def _new_channel(self) -> GrpcChannel:
        return GrpcChannel(self.services, self._http2_limits, self.opened, self.closed)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            for channel in list(self.channels):
                channel.sweep()
