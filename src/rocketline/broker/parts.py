"""What a broker consists of, put together: which part there is, and what each is given to work with.

Nothing runs here by itself. The owner, a `Broker` or a test, opens the store, builds the rest on it, asks for the handlers
and takes care of time: it dispatches when something was appended, saves tables, and closes what was opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

from rocketline.broker.changes import ChangingConfig
from rocketline.broker.config import BrokerConfig
from rocketline.broker.consumer_offsets import SEPARATOR, ConsumerOffsets
from rocketline.broker.delays import DelayLevels, deliver_time_codes
from rocketline.broker.durability import Durability
from rocketline.broker.filters import ConsumerFilters
from rocketline.broker.groups import Groups
from rocketline.broker.handlers.send_back import FailureHook
from rocketline.broker.kept import OffLoop, Saving
from rocketline.broker.metrics.parts import MetricsParts
from rocketline.broker.pop.ordered import OrderInfoTable
from rocketline.broker.pop.pops import PopNeeds, Pops
from rocketline.broker.postponed import postpone
from rocketline.broker.queue_locks import QueueLocks
from rocketline.broker.queue_time import QueueTime
from rocketline.broker.registries import ConsumerRegistry, ProducerRegistry
from rocketline.broker.saved import SavedTable
from rocketline.broker.set_aside import SetAside
from rocketline.broker.statistics import BrokerStatistics
from rocketline.broker.timer.timers import Timers
from rocketline.broker.topics import WRITE, Topics, system_topics
from rocketline.broker.transactions.checker import CheckerParts, TransactionChecker
from rocketline.broker.transactions.half_messages import HalfMessages
from rocketline.broker.transactions.ops import OpWriter
from rocketline.broker.waiters import PullWaiters
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.protocol.bodies import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    MessageRequestModeTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rocketline.protocol.bodies.filters import ConsumerFilterTable
from rocketline.protocol.message_ids import encode_host
from rocketline.store.disk import Disk
from rocketline.store.dispatch import Arrivals
from rocketline.store.flush import ThreadWorker, Workers
from rocketline.store.message_store import MessageStore
from rocketline.store.timer.wheel import SLOT_COUNT
from rocketline.transport import DEFAULT_LIMITS, Limits, RemotingClient
from rocketline.transport.timed_router import TimedRouter

log = logging.getLogger(__name__)

T = TypeVar("T")


@wired
class Surroundings:
    """What the parts of a broker need to know of the process they are in."""

    root: Path
    disk: Disk
    clock: Clock
    random: Random
    pop_random: Random
    """Decides which pops look at redeliveries first, and at which queue."""
    ip: str
    address: str
    """What clients are told: `host:port`."""
    client: RemotingClient
    changing: ChangingConfig
    started_ms: int
    stored: Callable[[], None]
    """Called when something was appended."""
    dispatch: Callable[[], None]
    """Called when something became durable that somebody waits for."""
    levels_ms: tuple[int, ...]
    off_loop: OffLoop | None = None
    """Saves tables; None: they are saved on the spot."""
    workers: Workers = ThreadWorker
    timer_slots: int = SLOT_COUNT
    on_failure: FailureHook | None = None
    queue_time: QueueTime | None = None
    limits: Limits = DEFAULT_LIMITS
    """What one connection may cost."""

    @property
    def store_host(self) -> bytes:
        return encode_host(self.ip, int(self.address.rpartition(":")[2]))


class BrokerParts:
    """Every part of one broker."""

    def __init__(self, config: BrokerConfig, around: Surroundings) -> None:
        self.config = config
        """In force now: a change of settings replaces it, and handlers are made anew."""
        self.clock = around.clock
        self.disk = around.disk
        self.around = around

    def open_store(self) -> None:
        """Lock the folder and recover the log; whoever calls this closes the store."""
        filters = self.config.filters
        file = self.saved("consumerFilter.json", ConsumerFilterTable)
        self.filters = ConsumerFilters(file, self.clock, filters.bloom, filters.keep_dead_ms)
        # Before the store: messages it lists again need their bitmaps too.
        self.filters.load()
        self.store = MessageStore(
            self.around.root,
            self.config.store,
            self.around.store_host,
            disk=self.disk,
            clock=self.clock,
            tags_code_for=deliver_time_codes(self.around.levels_ms),
            bitmap_for=self.filters.bitmap_for if filters.bitmaps and self.config.store.ext.enabled else None,
            workers=self.around.workers,
        )
        report = self.store.open()
        self.after_crash = report.after_crash
        log.info("%s", report)

    def build(self) -> None:
        """Everything on top of the open store, with its tables loaded."""
        self._build_tables()
        self._build_registries()
        self._build_transactions()
        self.pops = self._build_pops()

    def _build_tables(self) -> None:
        config, around, clock, store = self.config, self.around, self.clock, self.store
        self.disk.make_folder(around.root / "config")
        self.topics = Topics(
            self.saved("topics.json", TopicConfigSerializeWrapper),
            system_topics(config.cluster, config.name, config.topics, config.pop.revive_queue_count),
            clock,
            auto_create=config.topics.auto_create,
            writable=bool(config.permission & WRITE),
            off_loop=around.off_loop,
        )
        self.aside = SetAside(store, self.topics, around.stored)
        self.delays = DelayLevels(
            around.levels_ms, store, self.saved("delayOffset.json", DelayOffsetTable), clock, around.stored, self.aside
        )
        self.groups = Groups(
            self.saved("subscriptionGroup.json", SubscriptionGroupWrapper),
            clock,
            auto_create=config.groups.auto_create,
            off_loop=around.off_loop,
        )
        self.offsets = ConsumerOffsets(self.saved("consumerOffset.json", ConsumerOffsetTable), clock)
        self.timers = Timers(
            config.store.timers, store, self.disk, around.root, clock, around.stored, around.random, self.aside,
            around.timer_slots,
        )  # fmt: skip
        for table in (self.topics, self.groups, self.offsets, self.delays, self.timers):
            table.load()
        if self.after_crash:
            self.topics.adopt(store.queue_counts())
        self._cap_offsets()

    def _build_registries(self) -> None:
        """Who is connected, who waits, what is counted; and who is told when the store has news."""
        config, clock, store = self.config, self.clock, self.store
        expiry_s = config.client_expiry_ms / 1000
        self.consumers = ConsumerRegistry(clock, expiry_s, self._may_notify)
        self.consumers.on_subscriptions = self.filters.register
        self.consumers.on_gone = self.filters.unregister
        self.producers = ProducerRegistry(clock, expiry_s)
        self.locks = QueueLocks(clock, config.queue_lock_ms / 1000)
        self.waiters = PullWaiters(config.max_held_pulls)
        self.statistics = BrokerStatistics(config.cluster, clock, self.topics.is_system)
        self.delays.on_delivered = self.statistics.delivered
        self.durability = Durability(config.store.flush.sync_timeout_ms / 1000, self.around.dispatch)
        store.on_arrivals = self._arrived
        store.on_flushed = self.durability.flushed_from_thread
        store.on_flush_failed = self.durability.failed_from_thread
        store.on_committed = self.durability.committed_from_thread

    def saved(self, name: str, kind: type[T]) -> SavedTable[T]:
        return SavedTable(self.disk, self.around.root / "config" / name, kind)

    def _build_transactions(self) -> None:
        config, clock, store = self.config, self.clock, self.store
        ops = OpWriter(store, clock, self.around.store_host, self.around.stored, config.transactions.op_bytes)
        self.half_messages = HalfMessages(
            store, ops, self.around.stored, partial(postpone, timers=self.timers, delays=self.delays)
        )
        self.checker = TransactionChecker(
            config.transactions,
            CheckerParts(
                store=store,
                topics=self.topics,
                offsets=self.offsets,
                producers=self.producers,
                half_messages=self.half_messages,
                aside=self.aside,
                clock=clock,
                stored=self.around.stored,
                store_host=self.around.store_host,
                broker_name=config.name,
            ),
        )

    def _build_pops(self) -> Pops:
        config, store = self.config, self.store
        self.offsets.flushed_offset = lambda: store.flushed_offset
        pops = Pops(
            config.pop,
            PopNeeds(
                store=store,
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                timers=self.timers,
                statistics=self.statistics,
                aside=self.aside,
                clock=self.clock,
                random=self.around.pop_random,
                stored=self.around.stored,
                order_file=self.saved("consumerOrderInfo.json", OrderInfoTable),
                mode_file=self.saved("messageRequestMode.json", MessageRequestModeTable),
                store_host=self.around.store_host,
                broker_name=config.name,
                cluster=config.cluster,
                is_master=config.broker_id == 0,
                off_loop=self.around.off_loop,
            ),
        )
        pops.load(after_crash=self.after_crash)
        return pops

    def for_metrics(self, timed: TimedRouter | None) -> MetricsParts:
        return MetricsParts(
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            producers=self.producers,
            waiters=self.waiters,
            statistics=self.statistics,
            timers=self.timers,
            half_messages=self.half_messages,
            pops=self.pops,
            aside=self.aside,
            clock=self.clock,
            timed=timed,
        )

    def name_servers(self) -> list[str]:
        return [address for item in self.config.registration.namesrv.split(";") if (address := item.strip())]

    def _cap_offsets(self) -> None:
        """What the log lost in a crash no group may have consumed."""
        for key, queue_id, _ in self.offsets.items():
            topic = key.partition(SEPARATOR)[0]
            self.offsets.cap(key, queue_id, self.store.max_offset(topic, queue_id))

    def _may_notify(self, group: str) -> bool:
        config = self.groups.table.get(group)
        if not self.config.groups.tells_members:
            return False
        return config is None or config.notify_consumer_ids_changed_enable

    def mark_store(self) -> Saving:
        """Have written down how far everything is on disk, off the loop."""
        if self.around.off_loop is not None:
            return self.around.off_loop(self.store.mark_now)
        self.store.mark_now()
        return None

    def suspend_s(self, asked_ms: int) -> float:
        return max(0, asked_ms if self.config.long_polling else self.config.short_polling_ms) / 1000

    def _arrived(self, entries: Arrivals) -> None:
        self.waiters.on_arrivals(entries)
        self.delays.on_arrivals(entries)
        self.timers.on_arrivals()
        self.pops.on_arrivals(entries)

    def topic_gone(self) -> None:
        self.waiters.answer_all()
        self.pops.topic_gone()
