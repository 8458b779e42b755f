"""The front as a process of its own: `rocketline proxy`, before any cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from rocketline.async_table import OffLoop
from rocketline.auth import needs
from rocketline.auth.guard import AccessGuard
from rocketline.auth.metrics import access_families
from rocketline.auth.opening import open_accounts
from rocketline.auth.posture import refuse_open_bind
from rocketline.clock import SYSTEM_CLOCK
from rocketline.errors import ConfigError
from rocketline.metrics.exporter import MetricsExporter
from rocketline.proxy.config import PORT, ProxyConfig
from rocketline.proxy.front import GrpcFront
from rocketline.proxy.metrics import labels, sources
from rocketline.proxy.remote import RemoteBackend
from rocketline.store.files.disk import RealDisk
from rocketline.transport.accepting import page_front
from rocketline.transport.server_tls import ServerTls, own_access

log = logging.getLogger(__name__)


class Proxy:
    """A front before a cluster; an async context manager.

    Clients are asked for accounts when `authenticationEnabled` says so; accounts are those of `rocketline.authPath`, or the
    first ones that the settings name. Without that everybody who reaches the port acts with the account that the proxy
    signs its own requests with (`innerClientAuthenticationCredentials`).
    """

    def __init__(self, config: ProxyConfig) -> None:
        if not config.name_servers:
            raise ConfigError("a proxy needs a name server to find brokers by: set namesrvAddr (-n HOST:PORT)")
        config.auth.refuse_false_safety()
        if config.is_open:
            refuse_open_bind(config.host, is_insecure=config.auth.insecure)
        self._config = config
        self._undo = AsyncExitStack()
        self._off_loop = OffLoop()
        self._front: GrpcFront | None = None
        self._exporter: MetricsExporter | None = None

    @property
    def address(self) -> str:
        """`host:port` for gRPC clients."""
        return self._front.address if self._front is not None else ""

    @property
    def metrics_address(self) -> str:
        return self._exporter.address if self._exporter is not None else ""

    async def __aenter__(self) -> Self:
        config = self._config
        async with AsyncExitStack() as undo:
            guard = await self._guard(undo)
            access = own_access(config.tls, ServerTls.of(config.tls, config.host), config.auth.credentials)
            backend = await undo.enter_async_context(RemoteBackend(config.name_servers, access, guard))
            port = PORT if config.grpc.port < 0 else config.grpc.port
            grpc = replace(config.grpc, port=port, max_body_bytes=config.max_message_bytes)
            front = GrpcFront(backend, config.host, grpc, tls=config.tls, connections=config.connections)
            await undo.enter_async_context(front)
            exporter = self._new_exporter(front, guard, undo)
            undo.push_async_callback(exporter.close)
            await exporter.start()
            self._front, self._exporter = front, exporter
            self._undo = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._undo.aclose()
        await self._off_loop.finish()

    def _new_exporter(self, front: GrpcFront, guard: AccessGuard | None, undo: AsyncExitStack) -> MetricsExporter:
        """By TLS only where certificates are configured: nobody could check the one that the front makes up."""
        config = self._config
        tls = ServerTls.of(config.tls, config.host)
        if tls is not None:
            _run(tls.watch(), undo)
        own = labels(config.cluster, config.name)
        refusals = None if guard is None else guard.refusals
        access = "access control", partial(access_families, refusals, is_open=config.is_open)
        found = partial(sources, front, config.metrics, access)
        return MetricsExporter(config.metrics, found, own, lambda: "", page_front(tls))

    async def _guard(self, undo: AsyncExitStack) -> AccessGuard | None:
        """Checks clients by the accounts of this proxy; None: nobody is asked."""
        config = self._config.auth
        if not config.enabled:
            return None
        folder = Path(config.path) if config.path else None
        accounts = await open_accounts(config, folder, RealDisk(), self._off_loop)
        _run(accounts.watch(), undo)
        guard = AccessGuard(accounts, config, needs.BROKER, needs.Server(), lambda code: True, SYSTEM_CLOCK)
        undo.callback(guard.refusals.close)
        return guard


def _run(work: Coroutine[Any, Any, None], undo: AsyncExitStack) -> None:
    """Have something run until the end."""
    undo.callback(asyncio.create_task(work).cancel)
