"""A broker on a port: its parts (`parts.py`) and their handlers (`handler_wiring.py`), started and stopped in order.

Start: port taken, folder locked and log recovered, tables loaded, name servers told, requests accepted. Stop, the
reverse: name servers told first, so that clients go elsewhere; then held pulls answered, no new requests, tables saved,
store closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import AsyncExitStack
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any, Protocol

from rocketline.broker.background import BackgroundTasks
from rocketline.broker.changes import ChangingConfig, SavedChanges
from rocketline.broker.config import BrokerConfig, parse_delay_levels
from rocketline.broker.handler_wiring import routers
from rocketline.broker.handlers.send_back import FailureHook
from rocketline.broker.kept import OffLoop
from rocketline.broker.metrics.collector import BrokerMetrics
from rocketline.broker.parts import BrokerParts, Surroundings
from rocketline.broker.queue_time import QueueTime
from rocketline.broker.registration import Identity, Registration
from rocketline.broker.saved import SavedTable
from rocketline.broker.topics import WRITE
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import ConfigError, StoreError
from rocketline.store.disk import Disk, RealDisk
from rocketline.store.flush import ThreadWorker, Workers
from rocketline.transport import Channel, RemotingClient, RemotingServer, Router
from rocketline.transport.audit import audited
from rocketline.transport.timed_router import TimedChannel, TimedRouter

log = logging.getLogger(__name__)

DISPATCH_AGAIN_S = 1.0
"""Pause before the dispatcher tries again what the disk refused."""
SAVE_AGAIN_S = 5.0
"""The same for tables of topics and groups."""


class _Periodic(Protocol):
    """A table saved now and then; what `take_changes` returns is for its own `write`."""

    def take_changes(self) -> Any: ...

    def write(self, data: Any, /) -> None: ...


class Broker:
    """One broker in this process and event loop; an async context manager."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk | None = None,
        random: Random | None = None,
        on_failure: FailureHook | None = None,
        workers: Workers = ThreadWorker,
    ) -> None:
        """`on_failure` is told of every message that a group could not handle and handed back; `workers` make what flushes
        the store."""
        if not config.store_root:
            raise ConfigError("a broker needs a data folder: set storePathRootDir")
        self.config = config
        self._clock = clock
        self._disk = disk or RealDisk()
        self._random = random or Random()
        self._on_failure = on_failure
        self._workers = workers
        self._root = Path(config.store_root)
        self._host = config.advertised_host or _own_address(config.bind_host)
        timing = config.metrics
        self._timed = TimedRouter(clock.monotonic, timing.slow_request_ms) if timing.times_requests else None
        self._router = self._timed or Router()
        self._server = RemotingServer(
            self._router,
            config.bind_host,
            config.port,
            max_connections=config.max_connections,
            channel_type=TimedChannel if self._timed else Channel,
        )
        self._queue_time = QueueTime(config.send_wait_ms, clock) if config.fails_fast else None
        self._background = BackgroundTasks()
        self._off_loop = OffLoop()
        self._dispatch_scheduled = False
        self._dispatch_again: asyncio.TimerHandle | None = None
        self._running = False
        self._serving = False

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def address(self) -> str:
        """What clients are told: `host:port`."""
        return f"{self._host}:{self._server.port}"

    @property
    def metrics_address(self) -> str:
        """Where the page for Prometheus is, `host:port`; "" when there is none."""
        return self._exporter.address if self._running else ""

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Serve; what did not work out is given back: port, folder, connections, the word to the name servers."""
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as undo:
            # The port is part of every message id, so it is taken before the store is opened.
            await self._server.bind()
            undo.push_async_callback(self._server.close, grace_s=0)
            self._client = RemotingClient()
            self._load_changes()
            self.parts = BrokerParts(self.config, self._surroundings())
            self.parts.open_store()
            undo.callback(self.parts.store.close)
            undo.push_async_callback(self._off_loop.finish)
            self._build()
            undo.callback(self.parts.timers.close)
            undo.push_async_callback(self._client.close)
            undo.push_async_callback(self._exporter.close)
            await self._exporter.start()
            undo.push_async_callback(self._registration.unregister)
            await self._registration.register_all()
            # The first message must not find the loop waiting for the first file.
            await self._off_loop(self.parts.store.wait_prepared)
            await self._server.start()
            undo.pop_all()
        self._running = self._serving = True
        # A request may have come with the very turn of the loop that began to listen.
        self._dispatch()
        self._start_background()
        log.info("broker %s serves at %s, data in %s", self.name, self.address, self._root)

    def _load_changes(self) -> None:
        file = SavedTable(self._disk, self._root / "config" / "rocketline.settings.json", SavedChanges)
        self._changing = ChangingConfig(file, self.config, self._clock, self._off_loop)
        self.config = self._changing.load()
        self._changing.on_change = self._reconfigure

    def _reconfigure(self, keys: frozenset[str]) -> None:
        """Work by new settings: handlers are made anew, what lives on is told."""
        self.config = self.parts.config = config = self._changing.current
        self._install_handlers()
        self.parts.groups.auto_create = config.groups.auto_create
        if "autoCreateTopicEnable" in keys:
            self.parts.topics.create_by_itself(config.topics.auto_create)
        self.parts.store.set_retention(config.store.retention)
        self.parts.checker.use(config.transactions)
        self.parts.timers.use(config.store.timers)
        if "brokerPermission" in keys:
            self.parts.topics.writable = bool(config.permission & WRITE)
            self._registration.broker_perm = config.permission
            # Under a new version, or the name servers would take it for what they know.
            self.parts.topics.announce_all()

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            root=self._root,
            disk=self._disk,
            clock=self._clock,
            random=self._random,
            pop_random=self._random,
            ip=_ip_of(self._host),
            address=self.address,
            client=self._client,
            changing=self._changing,
            started_ms=self._clock.now_ms(),
            stored=self._stored,
            dispatch=self._dispatch,
            levels_ms=parse_delay_levels(self.config.delay_levels),
            off_loop=self._off_loop,
            workers=self._workers,
            on_failure=self._on_failure,
            queue_time=self._queue_time,
            limits=self._server.limits,
        )

    def _build(self) -> None:
        parts = self.parts
        parts.build()
        self._registration = self._build_registration()
        parts.topics.on_change = self._registration.topics_changed
        self._install_handlers()
        self._metrics = BrokerMetrics(parts.for_metrics(self._timed), lambda: self.config)
        self._exporter = self._metrics.exporter()

    def _install_handlers(self) -> None:
        if self._router.lane is not None:
            self._router.lane.serve_kept()  # what it keeps came before what the next one will see
        self._router.lane = self._router.quick_reads = None
        for router in routers(self.parts):
            self._router.take(audited(router))

    def _build_registration(self) -> Registration:
        config = self.config
        ha_address = f"{self._host}:{self.port + 1}"
        return Registration(
            Identity(config.name, config.cluster, config.broker_id, self.address, ha_address),
            self.parts.name_servers(),
            self.parts.topics,
            self._client,
            self._clock,
            interval_s=config.registration.interval_ms / 1000,
            timeout_s=config.registration.timeout_ms / 1000,
            broker_perm=config.permission,
        )

    def _stored(self) -> None:
        """Something was appended: dispatch once the requests at hand are served."""
        if not self._dispatch_scheduled:
            self._dispatch_scheduled = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatch_scheduled = False
        if not self._serving:
            return
        parts = self.parts
        try:
            parts.store.dispatch()
        except Exception as error:
            # Stored but not yet listed: the next append, or this timer, goes on where it stopped.
            if self._dispatch_again is None:
                ours = not isinstance(error, StoreError)
                log.error("messages cannot be made readable now: %s", error, exc_info=ours)
                self._dispatch_again = self._loop.call_later(DISPATCH_AGAIN_S, self._try_dispatch_again)
        parts.waiters.answer_woken()
        parts.pops.answer_woken()

    def _try_dispatch_again(self) -> None:
        self._dispatch_again = None
        self._dispatch()

    def _start_background(self) -> None:
        config, parts = self.config, self.parts
        start, every = self._background.start, self._background.start_periodic
        start("registration", self._registration.run)
        start("delay levels", parts.delays.run)
        start("timers", parts.timers.run)
        for name, work in parts.pops.background().items():
            start(name, work)
        if self._queue_time is not None:
            start("queue time", self._queue_time.run)
        start("statistics", parts.statistics.run)
        every("transaction checks", lambda: self.config.transactions.interval_ms / 1000, parts.checker.check)
        every("notes of transactions", config.transactions.op_interval_ms / 1000, self._note_ended)
        every("consumer offsets", lambda: self.config.flush_offsets_ms / 1000, partial(self._save, parts.offsets))
        every("delay offsets", lambda: self.config.flush_delay_offsets_ms / 1000, partial(self._save, parts.delays))
        every("order of pops", config.pop.save_order_ms / 1000, self._save_order)
        every("SQL filters", config.filters.save_ms / 1000, partial(self._save, parts.filters))
        every("timer progress", config.store.timers.flush_interval_ms / 1000, partial(self._save, parts.timers))
        every("refused tables", SAVE_AGAIN_S, self._save_refused)
        every("silent clients", config.client_scan_ms / 1000, self._drop_expired)
        every("gone counters", config.client_scan_ms / 1000, self._forget_gone)
        every("old files", config.store.retention.interval_ms / 1000, self._clean_up)

    async def _save(self, table: _Periodic) -> None:
        data = table.take_changes()
        if data is not None:
            # A thread cannot be cancelled: `close` waits for it, or an old table could overwrite the last one.
            await asyncio.shield(self._off_loop(partial(table.write, data)))

    async def _save_refused(self) -> None:
        self.parts.topics.save_again()
        self.parts.groups.save_again()

    async def _save_order(self) -> None:
        self.parts.pops.clean()
        await self._save(self.parts.pops.ordered)

    async def _drop_expired(self) -> None:
        self.parts.consumers.drop_expired()
        self.parts.producers.drop_expired()
        self.parts.locks.drop_expired()

    async def _forget_gone(self) -> None:
        self._metrics.forget_gone()

    async def _note_ended(self) -> None:
        self.parts.half_messages.ops.write()
        self.parts.checker.publish()

    async def _clean_up(self) -> None:
        try:
            self.parts.store.clean_up()
            is_done = self.parts.store.trim_queues()
            while not is_done:
                await asyncio.sleep(0)
                is_done = self.parts.store.trim_queues()
        except StoreError as error:
            log.error("old files cannot be looked after now: %s", error)

    async def close(self) -> None:
        """Stop cleanly; a second call does nothing."""
        if not self._running:
            return
        self._running = False
        await self._background.close()
        await self._exporter.close()
        await self._off_loop.finish()
        await self._registration.unregister()
        self.parts.waiters.close()
        self.parts.pops.close_waiters()
        await self._server.close()
        await self._client.close()
        # The last requests may have changed tables.
        await self._off_loop.finish()
        self.parts.half_messages.ops.write()
        self.parts.pops.checkpoints.write_all()
        self._save_tables()
        self._serving = False
        self.parts.timers.close()
        self.parts.store.close(is_clean=self._save_rest())
        log.info("broker %s stopped", self.name)

    def _save_tables(self) -> None:
        """Save what is saved now and then, each table on its own: one that the disk refuses costs the others nothing."""
        parts = self.parts
        try:
            # Before the tables: they may not speak of messages that are not on disk.
            parts.store.flush_now()
            parts.checker.publish()
        except StoreError as error:
            log.error("offsets could not be saved: %s", error)
            return
        saved: tuple[_Periodic, ...] = parts.offsets, parts.delays, parts.filters, parts.timers, parts.pops.ordered
        for table in saved:
            try:
                # More than once: what was taken before, and had to wait for the disk, is not the latest.
                while (data := table.take_changes()) is not None:
                    table.write(data)
            except Exception as error:
                log.error("%s could not be saved: %s", type(table).__name__, error)

    def _save_rest(self) -> bool:
        """Save what the disk refused so far; False: the next start has to look for topics as after a crash."""
        try:
            self.parts.topics.save_rest()
            self.parts.groups.save_rest()
        except StoreError as error:
            log.error("topics and groups could not be saved: %s", error)
            return False
        return True


def _own_address(bind_host: str) -> str:
    """The address to tell clients: what we bind to, or this host's own when that is "all"."""
    if bind_host not in ("", "0.0.0.0", "::"):  # noqa: S104 (a comparison, nothing is bound)
        return bind_host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Chooses the interface of the default route; a datagram socket sends nothing here.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _ip_of(host: str) -> str:
    """An IP for the message ids; a host name that does not resolve cannot be advertised."""
    try:
        return str(ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        return str(socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)[0][4][0])
    except OSError as error:
        raise ConfigError(f"brokerIP1={host!r} is neither an address nor a name that resolves: {error}") from error
