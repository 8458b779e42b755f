"""A broker put together: builds the parts, gives each just what it uses, starts and stops them in order.

Start: port taken, folder locked and log recovered, tables loaded, name servers told, requests accepted. Stop, the
reverse: name servers told first, so that clients go elsewhere; then held pulls answered, no new requests, tables saved,
store closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeVar

from rocketline.broker.changes import ChangingConfig, SavedChanges
from rocketline.broker.config import BrokerConfig, parse_delay_levels
from rocketline.broker.consumer_offsets import SEPARATOR, ConsumerOffsets
from rocketline.broker.delays import DelayLevels, deliver_time_codes
from rocketline.broker.durability import Durability
from rocketline.broker.filters import ConsumerFilters
from rocketline.broker.groups import Groups
from rocketline.broker.handlers.admin.files import FileHandlers
from rocketline.broker.handlers.admin.groups import GroupHandlers
from rocketline.broker.handlers.admin.topics import TopicHandlers
from rocketline.broker.handlers.clients import ClientHandlers
from rocketline.broker.handlers.locks import LockHandlers
from rocketline.broker.handlers.offsets import OffsetHandlers
from rocketline.broker.handlers.pop import PopHandlers, PopParts
from rocketline.broker.handlers.pop_acks import PopAckHandlers
from rocketline.broker.handlers.pop_assignments import AssignmentHandlers
from rocketline.broker.handlers.pull import PullHandlers, PullParts
from rocketline.broker.handlers.queries import QueryHandlers
from rocketline.broker.handlers.replies import ReplyHandlers
from rocketline.broker.handlers.send import SendHandlers, SendParts
from rocketline.broker.handlers.send_back import FailureHook, SendBackHandlers
from rocketline.broker.handlers.timers import TimerHandlers
from rocketline.broker.handlers.transactions import TransactionHandlers
from rocketline.broker.metrics.collector import BrokerMetrics
from rocketline.broker.metrics.parts import MetricsParts
from rocketline.broker.pop.ordered import OrderInfoTable
from rocketline.broker.pop.pops import PopNeeds, Pops
from rocketline.broker.pop.routes import TopicQueues
from rocketline.broker.postponed import postpone
from rocketline.broker.queue_locks import QueueLocks
from rocketline.broker.queue_time import QueueTime
from rocketline.broker.registration import Identity, Registration
from rocketline.broker.registries import ConsumerRegistry, ProducerRegistry
from rocketline.broker.router import OperatorParts, broker_router, operator_router, pop_router
from rocketline.broker.saved import SavedTable
from rocketline.broker.selection import Selections
from rocketline.broker.statistics import BrokerStatistics
from rocketline.broker.timer.timers import Timers
from rocketline.broker.topics import READ, WRITE, Topics, system_topics
from rocketline.broker.transactions.checker import CheckerParts, TransactionChecker
from rocketline.broker.transactions.half_messages import HalfMessages
from rocketline.broker.transactions.ops import OpWriter
from rocketline.broker.waiters import PullWaiters
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import ConfigError, StoreError
from rocketline.protocol.bodies import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    MessageRequestModeTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rocketline.protocol.bodies.filters import ConsumerFilterTable
from rocketline.protocol.message_ids import UniqueIds, encode_host
from rocketline.protocol.records import LogEntry
from rocketline.store.disk import Disk, RealDisk
from rocketline.store.flush import ThreadWorker, Workers
from rocketline.store.message_store import MessageStore
from rocketline.transport import Channel, RemotingClient, RemotingServer, Router
from rocketline.transport.audit import audited
from rocketline.transport.timed_router import TimedChannel, TimedRouter

log = logging.getLogger(__name__)

T = TypeVar("T")

DISPATCH_AGAIN_S = 1.0
"""Pause before the dispatcher tries again what the disk refused."""


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
        self._levels_ms = parse_delay_levels(config.delay_levels)
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
        self._tasks: list[asyncio.Task[None]] = []
        self._saves: set[asyncio.Future[None]] = set()
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
            self._store_host = encode_host(_ip_of(self._host), self.port)
            self._load_changes()
            self._open_store()
            undo.callback(self._store.close)
            self._build()
            undo.callback(self._timers.close)
            undo.push_async_callback(self._client.close)
            undo.push_async_callback(self._exporter.close)
            await self._exporter.start()
            undo.push_async_callback(self._registration.unregister)
            await self._registration.register_all()
            await self._server.start()
            undo.pop_all()
        self._running = self._serving = True
        # A request may have come with the very turn of the loop that began to listen.
        self._dispatch()
        self._start_tasks()
        log.info("broker %s serves at %s, data in %s", self.name, self.address, self._root)

    def _load_changes(self) -> None:
        self._started_ms = self._clock.now_ms()
        file = self._saved("rocketline.settings.json", SavedChanges)
        self._changing = ChangingConfig(file, self.config, self._clock)
        self.config = self._changing.load()
        self._changing.on_change = self._reconfigure

    def _reconfigure(self, keys: frozenset[str]) -> None:
        """Work by new settings: handlers are made anew, what lives on is told."""
        self.config = config = self._changing.current
        self._install_handlers()
        self._groups.auto_create = config.groups.auto_create
        if "autoCreateTopicEnable" in keys:
            self._topics.create_by_itself(config.topics.auto_create)
        self._store.set_retention(config.store.retention)
        self._checker.use(config.transactions)
        self._timers.use(config.store.timers)
        if "brokerPermission" in keys:
            self._topics.writable = bool(config.permission & WRITE)
            self._registration.broker_perm = config.permission
            # Under a new version, or the name servers would take it for what they know.
            self._topics.announce_all()

    def _open_store(self) -> None:
        filters = self.config.filters
        file = self._saved("consumerFilter.json", ConsumerFilterTable)
        self._filters = ConsumerFilters(file, self._clock, filters.bloom, filters.keep_dead_ms)
        # Before the store: messages it lists again need their bitmaps too.
        self._filters.load()
        self._store = MessageStore(
            self._root,
            self.config.store,
            self._store_host,
            disk=self._disk,
            clock=self._clock,
            tags_code_for=deliver_time_codes(self._levels_ms),
            bitmap_for=self._filters.bitmap_for if filters.bitmaps and self.config.store.ext.enabled else None,
            workers=self._workers,
        )
        report = self._store.open()
        self._after_crash = report.after_crash
        log.info("%s", report)

    def _saved(self, name: str, kind: type[T]) -> SavedTable[T]:
        return SavedTable(self._disk, self._root / "config" / name, kind)

    def _build(self) -> None:
        config, clock, store = self.config, self._clock, self._store
        self._disk.make_folder(self._root / "config")
        self._delays = DelayLevels(
            self._levels_ms, store, self._saved("delayOffset.json", DelayOffsetTable), clock, self._stored
        )
        self._topics = Topics(
            self._saved("topics.json", TopicConfigSerializeWrapper),
            system_topics(config.cluster, config.name, config.topics, config.pop.revive_queue_count),
            clock,
            auto_create=config.topics.auto_create,
            writable=bool(config.permission & WRITE),
        )
        self._groups = Groups(
            self._saved("subscriptionGroup.json", SubscriptionGroupWrapper),
            clock,
            auto_create=config.groups.auto_create,
        )
        self._offsets = ConsumerOffsets(self._saved("consumerOffset.json", ConsumerOffsetTable), clock)
        self._timers = Timers(config.store.timers, store, self._disk, self._root, clock, self._stored, self._random)
        for table in (self._topics, self._groups, self._offsets, self._delays, self._timers):
            table.load()
        self._cap_offsets()
        expiry_s = config.client_expiry_ms / 1000
        self._consumers = ConsumerRegistry(clock, expiry_s, self._may_notify)
        self._consumers.on_subscriptions = self._filters.register
        self._consumers.on_gone = self._filters.unregister
        self._producers = ProducerRegistry(clock, expiry_s)
        self._locks = QueueLocks(clock, config.queue_lock_ms / 1000)
        self._waiters = PullWaiters(config.max_held_pulls)
        self._statistics = BrokerStatistics(config.cluster, clock, self._topics.is_system)
        self._delays.on_delivered = self._statistics.delivered
        self._durability = Durability(config.store.flush.sync_timeout_ms / 1000, self._dispatch)
        store.on_arrivals = self._arrived
        store.on_flushed = self._durability.flushed_from_thread
        store.on_flush_failed = self._durability.failed_from_thread
        store.on_committed = self._durability.committed_from_thread
        self._build_transactions()
        self._pops = self._build_pops()
        self._client = RemotingClient()
        self._registration = self._build_registration()
        self._topics.on_change = self._registration.topics_changed
        self._install_handlers()
        self._metrics = BrokerMetrics(self._metrics_parts(), lambda: self.config)
        self._exporter = self._metrics.exporter()

    def _install_handlers(self) -> None:
        self._router.lane = None
        self._router.take(audited(self._build_router()))
        self._router.take(audited(self._build_pop_router()))
        self._router.take(audited(operator_router(self._operator_parts())))

    def _build_transactions(self) -> None:
        config, clock, store = self.config, self._clock, self._store
        ops = OpWriter(store, clock, self._store_host, self._stored, config.transactions.op_bytes)
        self._half_messages = HalfMessages(
            store, ops, self._stored, partial(postpone, timers=self._timers, delays=self._delays)
        )
        self._checker = TransactionChecker(
            config.transactions,
            CheckerParts(
                store=store,
                topics=self._topics,
                offsets=self._offsets,
                producers=self._producers,
                half_messages=self._half_messages,
                clock=clock,
                stored=self._stored,
                store_host=self._store_host,
                broker_name=config.name,
            ),
        )

    def _build_pops(self) -> Pops:
        config, store = self.config, self._store
        self._offsets.flushed_offset = lambda: store.flushed_offset
        pops = Pops(
            config.pop,
            PopNeeds(
                store=store,
                topics=self._topics,
                groups=self._groups,
                offsets=self._offsets,
                timers=self._timers,
                statistics=self._statistics,
                clock=self._clock,
                random=self._random,
                stored=self._stored,
                order_file=self._saved("consumerOrderInfo.json", OrderInfoTable),
                mode_file=self._saved("messageRequestMode.json", MessageRequestModeTable),
                store_host=self._store_host,
                broker_name=config.name,
                cluster=config.cluster,
                is_master=config.broker_id == 0,
            ),
        )
        pops.load(after_crash=self._after_crash)
        return pops

    def _build_pop_router(self) -> Router:
        config, pops = self.config, self._pops
        timers = config.store.timers
        return pop_router(
            PopHandlers(
                PopParts(
                    popping=pops.popping,
                    store=self._store,
                    topics=self._topics,
                    groups=self._groups,
                    selections=Selections(self._filters, sql_enabled=config.filters.sql_enabled),
                    statistics=self._statistics,
                    clock=self._clock,
                    waiters=pops.waiters,
                    notifications=pops.notifications,
                    readable=bool(config.permission & READ),
                    has_timers=timers.enabled,
                    max_invisible_ms=timers.max_delay_s * 1000,
                    revive_queue_count=config.pop.revive_queue_count,
                )
            ),
            PopAckHandlers(
                store=self._store,
                topics=self._topics,
                offsets=self._offsets,
                checkpoints=pops.checkpoints,
                ordered=pops.ordered,
                statistics=self._statistics,
                clock=self._clock,
                durability=self._durability if config.store.flush.is_sync else None,
                queue_free=pops.queue_free,
                broker_name=config.name,
                revive_queue_count=config.pop.revive_queue_count,
                max_invisible_ms=timers.max_delay_s * 1000,
            ),
            AssignmentHandlers(
                self._topics,
                self._groups,
                self._consumers,
                pops.modes,
                TopicQueues(self._name_servers(), self._client, self._topics, self._clock, config.name),
                config.pop.shares_queues,
            ),
        )

    def _name_servers(self) -> list[str]:
        return [address for item in self.config.registration.namesrv.split(";") if (address := item.strip())]

    def _topic_gone(self) -> None:
        self._waiters.answer_all()
        self._pops.topic_gone()

    def _build_registration(self) -> Registration:
        config = self.config
        ha_address = f"{self._host}:{self.port + 1}"
        return Registration(
            Identity(config.name, config.cluster, config.broker_id, self.address, ha_address),
            self._name_servers(),
            self._topics,
            self._client,
            self._clock,
            interval_s=config.registration.interval_ms / 1000,
            timeout_s=config.registration.timeout_ms / 1000,
            broker_perm=config.permission,
        )

    def _build_router(self) -> Router:
        """Handlers remember nothing of their own: a change of settings makes them anew."""
        config, store = self.config, self._store
        writable = bool(config.permission & WRITE)
        sends = SendHandlers(
            SendParts(
                store=store,
                topics=self._topics,
                groups=self._groups,
                delays=self._delays,
                timers=self._timers,
                durability=self._durability,
                unique_ids=UniqueIds(_ip_of(self._host), self._clock),
                stored=self._stored,
                holds_locks=self._locks.are_held,
                store_host=self._store_host,
                broker_name=config.name,
                cluster=config.cluster,
                region=config.region,
                trace_on=config.trace_on,
                sync_flush=config.store.flush.is_sync,
                random=self._random,
                statistics=self._statistics,
                half_messages=None if config.transactions.refused else self._half_messages,
            )
        )
        filters = config.filters
        selections = Selections(self._filters, sql_enabled=filters.sql_enabled, filters_retries=filters.filters_retries)
        pulls = PullHandlers(
            PullParts(
                store=store,
                topics=self._topics,
                groups=self._groups,
                offsets=self._offsets,
                consumers=self._consumers,
                waiters=self._waiters,
                selections=selections,
                readable=bool(config.permission & READ),
                suspend_s=self._suspend_s,
                statistics=self._statistics,
                clock=self._clock,
                slave_read=config.slave_read,
            )
        )
        return broker_router(
            sends,
            pulls,
            SendBackHandlers(
                store,
                self._topics,
                self._groups,
                self._delays,
                self._stored,
                self._durability if config.store.flush.is_sync else None,
                writable=writable,
                random=self._random,
                statistics=self._statistics,
                on_failure=self._on_failure,
            ),
            OffsetHandlers(store, self._topics, self._groups, self._offsets),
            QueryHandlers(store),
            ClientHandlers(self._topics, self._groups, self._consumers, self._producers, self._clock, selections),
            TopicHandlers(self._topics, self._offsets, store, self._topic_gone),
            GroupHandlers(self._groups, self._offsets),
            FileHandlers(self._topics, self._offsets, store, self._topic_gone),
            LockHandlers(self._locks, self._topics, self._groups),
            TimerHandlers(
                store=store,
                topics=self._topics,
                timers=self._timers,
                clock=self._clock,
                stored=self._stored,
                durability=self._durability if config.store.flush.is_sync else None,
                broker_name=config.name,
                region=config.region,
                max_delay_s=config.store.timers.max_delay_s,
                recall_enabled=config.recall_enabled,
                writable=writable or config.recall_when_read_only,
            ),
            TransactionHandlers(
                self._half_messages,
                self._durability if config.store.flush.is_sync else None,
                self._clock.now_ms,
                config.transactions.timeout_ms,
                is_slave=config.broker_id != 0,
            ),
            ReplyHandlers(sends, self._producers, self._clock, config.stores_replies),
            self._queue_time,
        )

    def _operator_parts(self) -> OperatorParts:
        return OperatorParts(
            store=self._store,
            topics=self._topics,
            groups=self._groups,
            offsets=self._offsets,
            delays=self._delays,
            consumers=self._consumers,
            producers=self._producers,
            waiters=self._waiters,
            statistics=self._statistics,
            clock=self._clock,
            broker_name=self.config.name,
            address=self.address,
            server_side_reset=self.config.server_side_reset,
            timers=self._timers,
            config=self._changing,
            stored=self._stored,
            started_ms=self._started_ms,
        )

    def _metrics_parts(self) -> MetricsParts:
        return MetricsParts(
            store=self._store,
            topics=self._topics,
            groups=self._groups,
            offsets=self._offsets,
            consumers=self._consumers,
            producers=self._producers,
            waiters=self._waiters,
            statistics=self._statistics,
            timers=self._timers,
            half_messages=self._half_messages,
            pops=self._pops,
            clock=self._clock,
            timed=self._timed,
        )

    def _cap_offsets(self) -> None:
        """What the log lost in a crash no group may have consumed."""
        for key, queue_id, _ in self._offsets.items():
            topic = key.partition(SEPARATOR)[0]
            self._offsets.cap(key, queue_id, self._store.max_offset(topic, queue_id))

    def _may_notify(self, group: str) -> bool:
        config = self._groups.table.get(group)
        if not self.config.groups.tells_members:
            return False
        return config is None or config.notify_consumer_ids_changed_enable

    def _suspend_s(self, asked_ms: int) -> float:
        return max(0, asked_ms if self.config.long_polling else self.config.short_polling_ms) / 1000

    def _stored(self) -> None:
        """Something was appended: dispatch once the requests at hand are served."""
        if not self._dispatch_scheduled:
            self._dispatch_scheduled = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatch_scheduled = False
        if not self._serving:
            return
        try:
            self._store.dispatch()
        except StoreError as error:
            # Stored but not yet listed: the next append, or this timer, goes on where it stopped.
            if self._dispatch_again is None:
                log.error("messages cannot be made readable now: %s", error)
                self._dispatch_again = self._loop.call_later(DISPATCH_AGAIN_S, self._try_dispatch_again)
        self._waiters.answer_woken()
        self._pops.answer_woken()

    def _try_dispatch_again(self) -> None:
        self._dispatch_again = None
        self._dispatch()

    def _arrived(self, entries: list[LogEntry]) -> None:
        self._waiters.on_arrivals(entries)
        self._delays.on_arrivals(entries)
        self._timers.on_arrivals()
        self._pops.on_arrivals(entries)

    def _start_tasks(self) -> None:
        config = self.config
        self._spawn(self._registration.run())
        self._spawn(self._delays.run())
        if self._queue_time is not None:
            self._spawn(self._queue_time.run())
        self._spawn(self._timers.run())
        for work in self._pops.tasks():
            self._spawn(work)
        self._spawn(self._every(config.pop.save_order_ms / 1000, self._save_order))
        self._spawn(self._every(lambda: self.config.flush_offsets_ms / 1000, lambda: self._save(self._offsets)))
        self._spawn(self._every(lambda: self.config.flush_delay_offsets_ms / 1000, lambda: self._save(self._delays)))
        self._spawn(self._statistics.run())
        self._spawn(self._every(config.filters.save_ms / 1000, lambda: self._save(self._filters)))
        self._spawn(self._every(config.store.timers.flush_interval_ms / 1000, lambda: self._save(self._timers)))
        self._spawn(self._every(lambda: self.config.transactions.interval_ms / 1000, self._checker.check))
        self._spawn(self._every(config.transactions.op_interval_ms / 1000, self._note_ended))
        self._spawn(self._every(config.client_scan_ms / 1000, self._drop_expired))
        self._spawn(self._every(config.store.retention.interval_ms / 1000, self._clean_up))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self._loop.create_task(work))

    async def _every(
        self, interval_s: float | Callable[[], float], work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        while True:
            pause_s = interval_s() if callable(interval_s) else interval_s
            await asyncio.sleep(pause_s)
            try:
                await work()
            except Exception:
                log.exception("periodic work failed, trying again in %g s", pause_s)

    async def _save(self, table: _Periodic) -> None:
        data = table.take_changes()
        if data is not None:
            save = self._loop.run_in_executor(None, table.write, data)
            self._saves.add(save)
            save.add_done_callback(self._saves.discard)
            # A thread cannot be cancelled: `close` waits for it, or an old table could overwrite the last one.
            await asyncio.shield(save)

    async def _save_order(self) -> None:
        self._pops.clean()
        await self._save(self._pops.ordered)

    async def _drop_expired(self) -> None:
        self._consumers.drop_expired()
        self._producers.drop_expired()
        self._locks.drop_expired()
        self._metrics.forget_gone()

    async def _note_ended(self) -> None:
        self._half_messages.ops.write()
        self._checker.publish()

    async def _clean_up(self) -> None:
        try:
            self._store.clean_up()
            is_done = self._store.trim_queues()
            while not is_done:
                await asyncio.sleep(0)
                is_done = self._store.trim_queues()
        except StoreError as error:
            log.error("old files cannot be looked after now: %s", error)

    async def close(self) -> None:
        """Stop cleanly; a second call does nothing."""
        if not self._running:
            return
        self._running = False
        for task in self._tasks:
            task.cancel()
        await self._exporter.close()
        await asyncio.gather(*self._tasks, *self._saves, return_exceptions=True)
        await self._registration.unregister()
        self._waiters.close()
        self._pops.close_waiters()
        await self._server.close()
        await self._client.close()
        self._half_messages.ops.write()
        self._pops.checkpoints.write_all()
        try:
            # Before the tables: they may not speak of messages that are not on disk.
            self._store.flush_now()
            self._checker.publish()
            saved: tuple[_Periodic, ...] = (
                self._offsets, self._delays, self._filters, self._timers, self._pops.ordered,
            )  # fmt: skip
            for table in saved:
                # More than once: what was taken before, and had to wait for the disk, is not the latest.
                while (data := table.take_changes()) is not None:
                    table.write(data)
        except StoreError as error:
            log.error("offsets could not be saved: %s", error)
        self._serving = False
        self._timers.close()
        self._store.close()
        log.info("broker %s stopped", self.name)


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
