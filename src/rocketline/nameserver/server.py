"""A name server on a port: its tables, its request handlers, and the scan for silent brokers."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

from rocketline.async_table import OffLoop
from rocketline.auth import needs
from rocketline.auth.accounts import Accounts
from rocketline.auth.guard import AccessGuard
from rocketline.auth.metrics import access_families
from rocketline.auth.opening import open_accounts, warn_of_listeners
from rocketline.auth.posture import LocalOperators, refuse_open_bind
from rocketline.auth.refusal_log import RefusalLog
from rocketline.auth.wiring import account_routes
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import TransportError
from rocketline.metrics.exporter import MetricsExporter
from rocketline.nameserver.config import NameServerConfig
from rocketline.nameserver.handlers import Handlers
from rocketline.nameserver.kv_config import KvConfig
from rocketline.nameserver.metrics import CONSTANT, NameServerMetrics
from rocketline.nameserver.routes import MinBrokerIdChange, RouteTable
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.store.files.disk import RealDisk
from rocketline.transport import Channel, Limits, RemotingClient, RemotingServer, Router
from rocketline.transport.accepting import page_front
from rocketline.transport.access import Access
from rocketline.transport.audit import audited
from rocketline.transport.limits import Strangers
from rocketline.transport.server_tls import ServerTls, own_access
from rocketline.transport.timed_router import TimedChannel, TimedRouter

log = logging.getLogger(__name__)

NOTICE_TIMEOUT_S = 0.3
MAX_NOTICES = 256
"""Most notices sent at the same time. A lost notice only costs time: brokers also ask for the members of their group."""


ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104


class NameServer:
    """An async context manager; it serves between enter and exit.

    >>> async def show() -> None:
    ...     async with NameServer(NameServerConfig(host="127.0.0.1", port=0)) as name_server:
    ...         print(name_server.address)
    """

    def __init__(self, config: NameServerConfig | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._config = config or NameServerConfig()
        self._config.auth.refuse_false_safety()
        if self._config.is_open:
            refuse_open_bind(self._config.host, is_insecure=self._config.auth.insecure)
        self._clock = clock
        self.routes = RouteTable(self._config, clock, self._notify_brokers)
        self._handlers: Handlers | None = None
        self._server: RemotingServer | None = None
        self._scanner: asyncio.Task[None] | None = None
        self._exporter: MetricsExporter | None = None
        self._notices: set[asyncio.Task[None]] = set()
        self._accounts: Accounts | None = None
        self._refusals: RefusalLog | None = None
        self._off_loop = OffLoop()
        self._reloader: asyncio.Task[None] | None = None
        self._closing = False
        self._own_access = Access()

    @property
    def config(self) -> NameServerConfig:
        """The current settings; operators may change some while it runs."""
        return self._handlers.config if self._handlers else self._config

    @property
    def port(self) -> int:
        """The port it listens on, also when the settings say 0."""
        return self._server.port if self._server else self._config.port

    @property
    def address(self) -> str:
        """The address for clients on this machine."""
        host = "127.0.0.1" if self._config.host in ANY_ADDRESS else self._config.host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def metrics_address(self) -> str:
        """`host:port` of the page for Prometheus; "" when there is none."""
        return self._exporter.address if self._exporter else ""

    async def start(self) -> None:
        """Start to serve; ConfigError when the port or the key-value file cannot be used."""
        config, self._closing = self._config, False
        self._handlers = Handlers(config, self.routes, KvConfig.open(config.kv_config_path), self._clock)
        tls = ServerTls.of(config.tls, config.host)
        self._own_access = own_access(config.tls, tls, config.auth.credentials)
        limits = Limits(idle_s=config.max_idle_s)
        timing = config.metrics
        timed = TimedRouter(self._clock.monotonic, timing.slow_request_ms) if timing.times_requests else None
        router = timed or Router()
        router.take(audited(self._handlers.router()))
        await self._open_accounts(router, self._handlers, tls)
        server = self._server = RemotingServer(
            router,
            config.host,
            config.port,
            limits=limits,
            max_connections=config.max_connections,
            channel_type=TimedChannel if timed else Channel,
            connections=config.connections,
            tls=tls,
            # Brokers register thousands of topics in one frame.
            strangers=Strangers(limits.max_frame_bytes) if config.auth.enabled else None,
        )
        families = partial(access_families, self._refusals, is_open=config.is_open)
        metrics = NameServerMetrics(timing, self.routes, timed, lambda: len(server.channels), families, tls)
        self._exporter = MetricsExporter(timing, metrics.sources, CONSTANT, lambda: "", page_front(tls))
        await self._exporter.start()
        try:
            await self._server.start()
        except BaseException:
            await self._exporter.close()
            raise
        self._scanner = asyncio.create_task(self._scan_forever())
        if self._accounts is not None:
            self._reloader = asyncio.create_task(self._accounts.watch())

    async def _open_accounts(self, router: Router, handlers: Handlers, tls: ServerTls | None) -> None:
        """Have the router ask for accounts, or at least where operators' requests come from."""
        config = self._config
        if not config.auth.enabled:
            if config.is_open or config.connections.proxy_networks:
                router.guard = operators = LocalOperators(config.auth.admin_from, self._clock)
                handlers.trusts = operators.trusts
                self._refusals = operators.refusals
            return
        warn_of_listeners(config.host, tls)
        folder = Path(config.auth_folder) if config.auth_folder else None
        accounts = self._accounts = await open_accounts(config.auth, folder, RealDisk(), self._off_loop)
        guard = AccessGuard(accounts, config.auth, needs.NAME_SERVER, needs.Server(), router.serves, self._clock)
        router.guard = guard
        self._refusals = guard.refusals
        if not config.auth.is_follower:
            routes = account_routes(accounts, guard, self._clock, is_kept=folder is not None)
            router.take(audited(Router(routes)))

    async def close(self) -> None:
        self._closing = True
        for task in (self._scanner, self._reloader):
            if task is not None:
                task.cancel()
        if self._exporter is not None:
            await self._exporter.close()
        if self._server is not None:
            await self._server.close()
        if self._refusals is not None:
            self._refusals.close()
        for notice in self._notices:
            notice.cancel()
        await asyncio.gather(*self._notices, return_exceptions=True)
        await self._off_loop.finish()

    async def __aenter__(self) -> NameServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def scan(self) -> None:
        """Remove silent brokers and close their connections."""
        for live in self.routes.scan_expired():
            log.warning(
                "broker %s at %s was silent for %g s and is removed", live.broker_name, live.key.address, live.timeout_s
            )
            if isinstance(live.channel, Channel):
                live.channel.close()

    async def _scan_forever(self) -> None:
        while True:
            await asyncio.sleep(self.config.scan_interval_ms / 1000)
            try:
                self.scan()
            except Exception:
                log.exception("the search for silent brokers failed, trying again")

    def _notify_brokers(self, change: MinBrokerIdChange) -> None:
        wanted = self.config.notify_min_broker_id_changed or self.config.support_acting_master
        if not wanted or self._closing or len(self._notices) >= MAX_NOTICES:
            return
        for address in change.addresses:
            command = Command(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, change.header.encode())
            notice = asyncio.get_running_loop().create_task(_send_notice(address, command, self._own_access))
            self._notices.add(notice)
            notice.add_done_callback(self._notices.discard)


async def _send_notice(address: str, command: Command, access: Access) -> None:
    """Send a notice over a new connection: Apache's brokers serve it on their port, not on the connection they opened
    to us."""
    async with RemotingClient(connect_timeout_s=NOTICE_TIMEOUT_S, access=access) as client:
        try:
            await client.send_oneway(address, command, NOTICE_TIMEOUT_S)
        except TransportError as error:
            log.warning("broker at %s was not notified of the change of the lowest broker id: %s", address, error)
