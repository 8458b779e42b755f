"""The front as a server: its parts put together, on a port, with its background work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Self

from rocketline.broker.grpc_config import GrpcConfig, split_advertised
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import ConfigError
from rocketline.grpc.server import GrpcServer
from rocketline.grpc.services import common_services
from rocketline.proxy.access import Access
from rocketline.proxy.backend import Backend
from rocketline.proxy.clients import Clients
from rocketline.proxy.proto import schema
from rocketline.proxy.receiving import Receiving
from rocketline.proxy.routes import Endpoints, Routes
from rocketline.proxy.sending import Sending
from rocketline.proxy.service import MessagingService
from rocketline.proxy.settling import Settling
from rocketline.proxy.telemetry import Telemetry
from rocketline.proxy.transactions import Transactions
from rocketline.transport.server_config import ConnectionsConfig, TlsConfig, TlsMode
from rocketline.transport.server_tls import ServerTls

log = logging.getLogger(__name__)

CLIENT_SCAN_S = 5.0
AGAIN_S = 1.0
CLOSE_S = 3.0
"""How long messages may take at the end that are given back."""
H2 = ("h2",)


class GrpcFront:
    """Serves RocketMQ 5.x clients; an async context manager."""

    def __init__(
        self,
        backend: Backend,
        host: str,
        config: GrpcConfig,
        *,
        tls: TlsConfig,
        connections: ConnectionsConfig | None = None,
        max_connections: int = 10_000,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._host = host
        self._backend = backend
        self.config = config
        access = Access(backend)
        self.clients = Clients(backend, config.max_clients, clock.monotonic)
        self.transactions = Transactions(backend, access, clock.monotonic)
        settling = Settling(config, backend, access, clock)
        self.renewals = settling.renewals
        self._background = settling.background
        self.clients.on_gone.append(self.renewals.client_gone)
        advertised = split_advertised(config.advertised) if config.advertised else None
        self.service = MessagingService(access, self.clients)
        services = self.service.methods(
            Routes(backend, access, Endpoints(advertised, lambda: (self._host, self.port))),
            Sending(config, backend, access, self.transactions, clock),
            Receiving(config, backend, access, self.clients, settling, clock),
            settling,
            self.transactions,
            Telemetry(config, backend, access, self.clients, self.transactions.check),
        )
        self.tls = front_tls(tls, host)
        self.server = GrpcServer(
            {**services, **common_services(schema, lambda: not self._is_closing)},
            host,
            config.port,
            max_connections=max_connections,
            connections=connections,
            tls=self.tls,
        )
        self._advertised = advertised
        self._is_closing = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        """The bound port, also when 0 was configured."""
        return self.server.port

    @property
    def address(self) -> str:
        """`host:port` for clients: what they are told, or where it listens."""
        host, port = self._advertised or (self._host, self.port)
        if host in ("", "0.0.0.0", "::"):  # noqa: S104 (a comparison, nothing is bound)
            host = "127.0.0.1"
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def start(self) -> None:
        await self.server.start()
        self._tasks = [
            asyncio.create_task(_again(self.renewals.run)),
            asyncio.create_task(_again(self._drop_silent)),
        ]
        log.info("gRPC clients are served at %s", self.address)

    async def close(self) -> None:
        """Stop: clients are told to go, and brokers that they are gone."""
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        await self.server.close()
        await self.clients.close()
        await self._background.finish(CLOSE_S)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _drop_silent(self) -> None:
        while True:
            await asyncio.sleep(CLIENT_SCAN_S)
            await self.clients.drop_silent()


async def _again(work: Callable[[], Awaitable[None]]) -> None:
    """Background work that goes on after a failure."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("background work of the gRPC front failed; it goes on")
            await asyncio.sleep(AGAIN_S)


def front_tls(config: TlsConfig, host: str) -> ServerTls | None:
    """The TLS of the front: as configured for the other ports, else with a certificate that is made now, beside plain
    connections. Java's and Go's clients connect by TLS unless they are told otherwise, and check no certificate."""
    configured = ServerTls.of(config, host, alpn=H2)
    if configured is not None or config.mode == TlsMode.DISABLED:
        return configured
    try:
        return ServerTls.made_up(TlsMode.PERMISSIVE, alpn=H2)
    except ConfigError as error:
        log.warning("gRPC clients are served without TLS: %s", error)
        return None
