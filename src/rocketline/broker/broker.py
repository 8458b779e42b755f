"""A broker on a port: its parts (`parts.py`) and their handlers (`handler_wiring.py`), started and stopped in order.

Start: take the port, lock the folder and recover the log, load the tables, tell the name servers, accept requests.
Stop: tell the name servers first, so that clients go elsewhere; then answer held pulls, take no new requests, save the
tables, close the store.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Protocol

from rocketline.async_table import OffLoop
from rocketline.auth import needs
from rocketline.auth.guard import AccessGuard
from rocketline.auth.opening import open_accounts, warn_of_listeners, warn_of_readers
from rocketline.auth.posture import LocalOperators
from rocketline.broker.address import BrokerAddress, ip_of, own_host, why_unreachable
from rocketline.broker.background import BackgroundTasks
from rocketline.broker.config import BrokerConfig
from rocketline.broker.handler_wiring import install_handlers
from rocketline.broker.handlers.send_back import FailureHook
from rocketline.broker.metrics.collector import BrokerMetrics
from rocketline.broker.parts import BrokerParts, Environment, OwnerCallbacks
from rocketline.broker.replication.coordinated import Coordinators, etcd_of, make_member
from rocketline.broker.replication.ha_port import HaPort
from rocketline.broker.replication.role_work import RoleWork
from rocketline.broker.replication.roles import Role
from rocketline.broker.replication.tables import NOT_COPIED
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import ConfigError, StoreError
from rocketline.metrics.exporter import Source
from rocketline.protocol.command import Command
from rocketline.store.files.disk import Disk, RealDisk
from rocketline.store.flush.flusher import ThreadWorker, WorkerFactory
from rocketline.transport import Channel, RemotingClient, RemotingServer, Reply, Router
from rocketline.transport.limits import Strangers
from rocketline.transport.server_tls import ServerTls, own_access
from rocketline.transport.timed_router import TimedChannel, TimedRouter

log = logging.getLogger(__name__)

FRAME_REST_BYTES = 256 << 10
"""What a frame has besides the body of a message."""
DISPATCH_AGAIN_S = 1.0
"""Pause before the dispatcher tries again what the disk refused."""
SAVE_AGAIN_S = 5.0
"""The same for tables of topics and groups."""
TAKE_BACK_S = 5.0
"""A master that returns waits so long for the offsets of the replica that acted for it."""
OFFSETS_S = 1.0
"""How often a replica of a group with elections copies offsets: what comes again after a failover."""
MASTER_WORK = (
    "delay levels", "timers", "check points", "redeliveries", "transaction checks", "notes of transactions",
    "timer progress",
)  # fmt: skip
"""Names of the tasks that only a master has."""


class _Periodic(Protocol):
    """A table that is saved periodically; its `write` takes what its `take_changes` returns."""

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
        workers: WorkerFactory = ThreadWorker,
        coordinators: Coordinators = etcd_of,
    ) -> None:
        """`on_failure` is called for every message that a group hands back because it could not handle it; `workers` make
        the threads that flush the store; `coordinators` say where the record of a group with elections is kept."""
        if not config.store_root:
            raise ConfigError("a broker needs a data folder: set storePathRootDir")
        config.refuse_contradictions()
        config.auth.refuse_false_safety()
        config.refuse_open_binds()
        self._configured = config
        self._clock = clock
        self._disk = disk or RealDisk()
        self._random = random or Random()
        self._on_failure = on_failure
        self._workers = workers
        self._coordinators = coordinators
        self._root = Path(config.store_root)
        self._host = config.advertised_host or own_host(config.bind_host)
        timing = config.metrics
        self._timed = TimedRouter(clock.monotonic, timing.slow_request_ms) if timing.times_requests else None
        self._router = self._timed or Router()
        self._tls = ServerTls.of(config.tls, config.bind_host)
        self._access = own_access(config.tls, self._tls, config.auth.credentials)
        self._server = RemotingServer(
            self._router,
            config.bind_host,
            config.port,
            max_connections=config.max_connections,
            channel_type=TimedChannel if self._timed else Channel,
            connections=config.connections,
            tls=self._tls,
            strangers=Strangers(config.store.max_message_bytes + FRAME_REST_BYTES) if config.auth.enabled else None,
        )
        self._ha_port = HaPort(config, self._host, self._tls)
        self._background = BackgroundTasks()
        self._off_loop = OffLoop()
        self._dispatch_scheduled = False
        self._dispatch_again: asyncio.TimerHandle | None = None
        self._running = False
        self._serving = False

    @property
    def config(self) -> BrokerConfig:
        """The settings in force, once it is started: operators change some."""
        return self.parts.config

    @property
    def name(self) -> str:
        return self._configured.name

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def address(self) -> str:
        """What clients are told: `host:port`."""
        return f"{self._host}:{self._advertised_port}"

    @property
    def _advertised_port(self) -> int:
        return self._configured.advertised_port or self._server.port

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
        """Start to serve; on a failure everything is undone: port, folder, connections, registration."""
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as undo:
            # The port is part of every message id, so it is taken before the store is opened.
            await self._server.bind()
            undo.push_async_callback(self._server.close, grace_s=0)
            await self._ha_port.bind(self._server.port)
            undo.push_async_callback(self._ha_port.close)
            self._client = RemotingClient(access=self._access)
            self._warn_with_accounts()
            self.parts = BrokerParts(self._configured, self._environment())
            self.parts.open_store()
            undo.callback(self.parts.store.close)
            undo.push_async_callback(self._off_loop.finish)
            await self._open_accounts()
            self._build()
            await self._join_group(undo)
            undo.callback(self.parts.timers.close)
            undo.push_async_callback(self._client.close)
            undo.push_async_callback(self._exporter.close)
            await self._exporter.start()
            undo.push_async_callback(self.parts.registration.unregister)
            undo.push_async_callback(self.parts.roles.close)
            await self._ha_port.start(self.parts, self._router, self._server.port)
            if self.parts.roles.is_master and self.config.replication.acts_as_master:
                await self._take_offsets_back()
            await self.parts.registration.register_all()
            self.parts.roles.start()
            # Or the first message would block the loop until the first file is there.
            await self._off_loop(self.parts.store.wait_prepared)
            await self._server.start()
            undo.pop_all()
        self._running = self._serving = True
        # A request may have come in the same turn of the loop that began to listen.
        self._dispatch()
        self._start_background()
        log.info("broker %s serves at %s, data in %s", self.name, self.address, self._root)

    def add_metrics(self, source: Source) -> None:
        """Show more families with those of the broker."""
        self._metrics.more.append(source)

    def serve(self, channel: Channel, request: Command) -> Reply:
        """Serve a request of somebody in this process, as one that was read from a connection."""
        if self._timed is not None:
            self._timed.began = self._timed.monotonic()
        return self._router.serve(channel, request)

    def late_answer(self, channel: Channel, request: Command, answer: Command | None) -> Command | None:
        """The answer to such a request that had to wait, or a refusal when its sender lost the right to it meanwhile."""
        guard = self._router.guard
        return answer if guard is None else guard.late_answer(channel, request, answer)

    def _warn_with_accounts(self) -> None:
        """Of ways around the accounts, where they are asked for."""
        if self._configured.auth.enabled:
            warn_of_listeners(self._configured.bind_host, self._tls)
            if isinstance(self._disk, RealDisk):
                warn_of_readers(self._root)

    async def _open_accounts(self) -> None:
        """Have the router ask for accounts, or at least where operators' requests come from."""
        config, parts = self._configured, self.parts
        if config.auth.enabled:
            folder = Path(config.auth_folder)
            parts.accounts = await open_accounts(config.auth, folder, self._disk, self._off_loop)
            server = needs.Server(config.cluster, config.topics.trace_topic, lambda name: name in parts.groups.table)
            parts.access = AccessGuard(
                parts.accounts, config.auth, needs.BROKER, server, self._router.serves, self._clock
            )
            self._router.guard = parts.access
            parts.refusals = parts.access.refusals
        elif config.is_open or config.connections.proxy_networks:
            self._router.guard = operators = LocalOperators(config.auth.admin_from, self._clock)
            parts.refusals = operators.refusals

    async def _take_offsets_back(self) -> None:
        """Before anybody finds this master: while it was away, groups may have gone on at the replica that acted for it."""
        members = await self.parts.registration.members()
        address = members[min(members)] if members else ""
        if not address or address == self.address:
            return
        try:
            async with asyncio.timeout(TAKE_BACK_S):
                await self.parts.copier.take_back(address)
        except NOT_COPIED as error:
            log.warning("offsets cannot be had from %s, which acted as master: what was consumed there comes again: %s",
                        address, error or "not in time")  # fmt: skip

    async def _join_group(self, undo: AsyncExitStack) -> None:
        if self._configured.is_coordinated:
            coordinator = self._coordinators(self._configured)
            undo.push_async_callback(coordinator.close)
            self.parts.member = make_member(self.parts, coordinator, (self.address, self._ha_port.address))

    def _environment(self) -> Environment:
        return Environment(
            root=self._root,
            disk=self._disk,
            clock=self._clock,
            random=self._random,
            address=BrokerAddress(self._host, ip_of(self._host), self._advertised_port),
            client=self._client,
            owner=OwnerCallbacks(self._stored, self._dispatch, self._reconfigure, self._on_failure, self._role_work()),
            off_loop=self._off_loop,
            workers=self._workers,
            limits=self._server.limits,
            access=self._access,
            ha_address=self._ha_port.address,
            ha_tls=self._ha_port.has_tls,
        )

    def _role_work(self) -> RoleWork:
        return RoleWork(
            lead=self._lead,
            rest=self._rest,
            serve_by_role=self._serve_by_role,
            announce=self._announce,
            log_cut=self._log_was_cut,
            stored=self._stored,
            copy_tables=lambda: self.parts.copier.copy_now(),
        )

    async def _lead(self) -> None:
        """Begin what only a master does: it is built anew, from what this broker copied."""
        await self._background.stop(MASTER_WORK)
        await self._off_loop.finish()
        self.parts.build_for_master()
        if self._running:
            self._start_master_work()

    def _rest(self) -> None:
        """Stop what only a master does."""
        self._background.cancel(MASTER_WORK)
        self.parts.waiters.answer_all()
        self.parts.pops.waiters.answer_all()
        self.parts.pops.notifications.answer_all()

    def _serve_by_role(self) -> None:
        install_handlers(self._router, self.parts)
        self._stored()

    async def _announce(self) -> None:
        """Tell the name servers what this broker is now."""
        roles = self.parts.roles
        await self.parts.registration.register_as(roles.registered_id, roles.epoch)

    def _log_was_cut(self) -> None:
        """Offsets of groups must not lie behind the end of their queues."""
        self.parts.cap_offsets()

    def _build(self) -> None:
        self.parts.build()
        install_handlers(self._router, self.parts)
        self._metrics = BrokerMetrics(self.parts, self._timed, self._tls)
        self._exporter = self._metrics.exporter()

    def _reconfigure(self, keys: frozenset[str]) -> None:
        """Work by changed settings: handlers are built anew, the parts that live on are told."""
        install_handlers(self._router, self.parts)
        self.parts.use_settings(keys)

    def _stored(self) -> None:
        """Dispatch once the requests at hand are served: something was appended."""
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
            # Stored but not yet dispatched: the next append, or this timer, goes on where it stopped.
            if self._dispatch_again is None:
                ours = not isinstance(error, StoreError)
                log.error("messages cannot be made readable now: %s", error, exc_info=ours)
                self._dispatch_again = self._loop.call_later(DISPATCH_AGAIN_S, self._try_dispatch_again)
        parts.roles.moved()
        parts.waiters.answer_woken()
        parts.pops.answer_woken()

    def _try_dispatch_again(self) -> None:
        self._dispatch_again = None
        self._dispatch()

    def _start_background(self) -> None:
        config, parts = self.config, self.parts
        start, every = self._background.start, self._background.start_periodic
        if config.advertised_host or config.advertised_port:
            self._background.start_once("own address", self._check_address)
        start("registration", parts.registration.run)
        if config.replication.acts_as_master:
            every("heartbeats", 1.0, parts.registration.heartbeat)
        if parts.roles.is_master:
            self._start_master_work()
        if parts.member is not None:
            start("election", parts.member.run)
        every("tables of the master", config.replication.tables_ms / 1000, self._copy_tables)
        if config.is_coordinated:
            every("offsets of the master", min(OFFSETS_S, config.replication.tables_ms / 1000), self._copy_offsets)
        if parts.loop_delay is not None:
            start("loop delay", parts.loop_delay.run)
        start("statistics", parts.statistics.run)
        every("consumer offsets", lambda: self.config.flush_offsets_ms / 1000, partial(self._save, parts.offsets))
        every("delay offsets", lambda: self.config.flush_delay_offsets_ms / 1000, self._save_delays)
        every("order of pops", config.pop.save_order_ms / 1000, self._save_order)
        every("SQL filters", config.filters.save_ms / 1000, partial(self._save, parts.filters))
        if parts.accounts is not None:
            start("accounts", parts.accounts.watch)
        every("refused tables", SAVE_AGAIN_S, self._save_refused)
        every("silent clients", config.client_scan_ms / 1000, self._drop_expired)
        every("gone counters", config.client_scan_ms / 1000, self._forget_gone)
        every("old files", config.store.retention.interval_ms / 1000, self._clean_up)

    def _start_master_work(self) -> None:
        """What only a master does: MASTER_WORK has the names."""
        config, parts = self.config, self.parts
        start, every = self._background.start, self._background.start_periodic
        start("delay levels", parts.delays.run)
        start("timers", parts.timers.run)
        for name, work in parts.pops.background().items():
            start(name, work)
        every("transaction checks", lambda: self.config.transactions.interval_ms / 1000, parts.checker.check)
        every("notes of transactions", config.transactions.op_interval_ms / 1000, self._note_ended)
        every("timer progress", config.store.timers.flush_interval_ms / 1000, partial(self._save, parts.timers))

    async def _copy_tables(self) -> None:
        if self.parts.roles.role is Role.REPLICA:
            await self.parts.copier.copy()

    async def _copy_offsets(self) -> None:
        if self.parts.roles.role is Role.REPLICA:
            await self.parts.copier.copy_offsets()

    async def _save_delays(self) -> None:
        await self._save(self.parts.delays)

    async def _check_address(self) -> None:
        """Warn when the address that clients are told leads nowhere: they would find the topic and then fail to connect."""
        reason = await why_unreachable(self.parts.environment.address)
        if reason:
            log.warning(
                "clients are told to connect to %s, which cannot be reached from this broker (%s); it listens on %s:%d. Set "
                "brokerIP1 and rocketline.advertisedPort to where clients reach it. If only clients can get there, as to "
                "some mapped ports of containers, all is well",
                self.address,
                reason,
                self._configured.bind_host,
                self.port,
            )

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
        if self.parts.member is not None:
            await self.parts.member.leave()
        await self._background.close()
        await self.parts.roles.stop_announcing()
        await self._exporter.close()
        await self._off_loop.finish()
        await self.parts.registration.unregister()
        self.parts.waiters.close()
        self.parts.pops.close_waiters()
        await self._server.close()
        if self.parts.refusals is not None:
            self.parts.refusals.close()
        await self._hand_over()
        await self._ha_port.close()
        await self.parts.for_master.close()
        await self._client.close()
        # The last requests may have changed tables.
        await self._off_loop.finish()
        if self.parts.roles.is_master:
            self.parts.half_messages.ops.write()
            self.parts.pops.checkpoints.write_all()
        self._save_tables()
        self._serving = False
        self.parts.timers.close()
        self.parts.store.close(is_clean=self._save_rest())
        log.info("broker %s stopped", self.name)

    async def _hand_over(self) -> None:
        """Let replicas have the last messages: they are what a master leaves behind."""
        await self.parts.roles.settle()
        await self.parts.roles.close()
        if self.parts.member is not None:
            await self.parts.member.close()

    def _save_tables(self) -> None:
        """Save what is saved now and then, each table on its own: one that the disk refuses costs the others nothing."""
        parts = self.parts
        try:
            # Before the tables: they may not speak of messages that are not on disk.
            parts.store.flush_now()
            if parts.roles.is_master:
                parts.checker.publish()
        except StoreError as error:
            log.error("offsets could not be saved: %s", error)
            return
        saved: list[_Periodic] = [parts.offsets, parts.delays, parts.filters, parts.pops.ordered]
        if parts.roles.is_master:
            saved.append(parts.timers)
        for table in saved:
            try:
                # More than once: what was taken before, and had to wait for the disk, is not the latest.
                while (data := table.take_changes()) is not None:
                    table.write(data)
            except Exception as error:
                log.error("%s could not be saved: %s", type(table).__name__, error)

    def _save_rest(self) -> bool:
        """Save what the disk refused so far; False: the next start must look for topics as after a crash."""
        try:
            self.parts.topics.save_rest()
            self.parts.groups.save_rest()
        except StoreError as error:
            log.error("topics and groups could not be saved: %s", error)
            return False
        return True
