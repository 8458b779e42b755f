"""A broker's parts put together by hand on a disk in memory and a clock that stands still, and clients that talk to them.

A `Peer` is a real channel over a transport in memory: requests go in as frames and answers come out as frames, so a test
sees what a client would see, without a socket.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from rocketline.broker.changes import ChangingConfig, SavedChanges
from rocketline.broker.config import (
    MESSAGE_DELAY_LEVELS,
    BrokerConfig,
    PopConfig,
    TopicConfigDefaults,
    TransactionConfig,
    parse_delay_levels,
)
from rocketline.broker.consumer_offsets import ConsumerOffsets
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
from rocketline.broker.pop.ordered import OrderInfoTable
from rocketline.broker.pop.pops import PopNeeds, Pops
from rocketline.broker.pop.routes import TopicQueues
from rocketline.broker.postponed import postpone
from rocketline.broker.queue_locks import QueueLocks
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
from rocketline.clock import ManualClock
from rocketline.message import MessageView
from rocketline.protocol.bloom import BloomFilter
from rocketline.protocol.bodies import (
    ConsumerData,
    ConsumerOffsetTable,
    DelayOffsetTable,
    HeartbeatData,
    MessageRequestModeTable,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    encode_body,
)
from rocketline.protocol.bodies.filters import ConsumerFilterTable
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.connection import Connection, frame_bytes
from rocketline.protocol.headers import PullMessageHeader, SendMessageHeader
from rocketline.protocol.message_ids import UniqueIds, encode_host
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.records import LogEntry, decode_messages
from rocketline.protocol.subscription import build_subscription
from rocketline.store.config import (
    ExtQueueConfig,
    FlushConfig,
    FlushDiskType,
    ReadConfig,
    RetentionConfig,
    StoreConfig,
    TimerConfig,
)
from rocketline.store.disk import Disk
from rocketline.store.message_store import MessageStore
from rocketline.testing.disks import FaultyDisk, MemoryDisk
from rocketline.transport import Channel, Limits, RemotingClient, Router

PATIENCE_S = 10.0
"""No test waits longer than this for something that must happen."""

ROOT = Path("/data")
CLUSTER = "DefaultCluster"
BROKER = "broker-a"
ADDRESS = "10.9.8.7:10911"
STORE_HOST = encode_host("10.9.8.7", 10911)
LEVELS_MS = parse_delay_levels(MESSAGE_DELAY_LEVELS)


class GatedDisk(FaultyDisk):
    """A disk whose flushes (or another operation) wait while its gate is shut."""

    def __init__(self, inner: Disk, operation: str = "sync") -> None:
        super().__init__(inner)
        self._gated = operation
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        """Somebody came to the gate."""

    def check(self, operation: str, path: Path) -> None:
        if operation == self._gated:
            self.reached.set()
            self.gate.wait(PATIENCE_S)
        super().check(operation, path)


@dataclass
class Setup:
    """What differs from test to test."""

    auto_create_topics: bool = True
    auto_create_groups: bool = True
    permission: int = 6
    sync_flush: bool = False
    sync_timeout_s: float = PATIENCE_S
    max_held: int = 100
    levels_ms: tuple[int, ...] = LEVELS_MS
    server_side_reset: bool = True
    holds_locks: Callable[[str], bool] | None = None
    """Instead of what the queue locks say."""
    log_segment_bytes: int = 1 << 20
    transient_pool_size: int = 0
    """Buffers of the transient pool; 0: none is used."""
    fail_without_buffer: bool = False
    slave_read: bool = False
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    is_slave: bool = False
    stores_replies: bool = True
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    reads: ReadConfig = field(default_factory=ReadConfig)
    sql_enabled: bool = True
    filters_retries: bool = False
    bitmaps: bool = False
    """Extended consume queues with filter bitmaps."""
    timers: TimerConfig = field(default_factory=lambda: TimerConfig(log_segment_bytes=52 * 400))
    timer_slots: int = 2 * 7 * 24 * 3600
    recall_enabled: bool = True
    pop: PopConfig = field(default_factory=PopConfig)
    pop_random: Random = field(default_factory=lambda: Random(1))
    """Decides which pops look at redeliveries first, and at which queue."""
    long_polling_s: Callable[[int], float] = lambda asked_ms: asked_ms / 1000
    clock: ManualClock = field(default_factory=ManualClock)
    disk: FaultyDisk = field(default_factory=lambda: GatedDisk(MemoryDisk()))


class Parts:
    """Every part of a broker that handlers use, and a router over all of them."""

    def __init__(self, setup: Setup | None = None) -> None:
        self.setup = setup = setup or Setup()
        self.on_failure: FailureHook = lambda header: None
        self.clock, self.disk = setup.clock, setup.disk
        self.filters = ConsumerFilters(
            self.saved("consumerFilter.json", ConsumerFilterTable),
            self.clock,
            BloomFilter.for_error_rate(20, 32),
            keep_dead_ms=86_400_000,
        )
        self.filters.load()
        self.store = self._open_store()
        self.disk.make_folder(ROOT / "config")
        self.topics = Topics(
            self.saved("topics.json", TopicConfigSerializeWrapper),
            system_topics(CLUSTER, BROKER, TopicConfigDefaults(auto_create=setup.auto_create_topics)),
            self.clock,
            auto_create=setup.auto_create_topics,
            writable=bool(setup.permission & WRITE),
        )
        self.groups = Groups(
            self.saved("subscriptionGroup.json", SubscriptionGroupWrapper),
            self.clock,
            auto_create=setup.auto_create_groups,
        )
        self.offsets = ConsumerOffsets(self.saved("consumerOffset.json", ConsumerOffsetTable), self.clock)
        self.delays = DelayLevels(
            setup.levels_ms,
            self.store,
            self.saved("delayOffset.json", DelayOffsetTable),
            self.clock,
            self._stored,
        )
        self.timers = Timers(
            setup.timers, self.store, self.disk, ROOT, self.clock, self._stored, Random(1), setup.timer_slots
        )
        for table in (self.topics, self.groups, self.offsets, self.delays, self.timers):
            table.load()
        for key, queue_id, _ in self.offsets.items():
            self.offsets.cap(key, queue_id, self.store.max_offset(key.partition("@")[0], queue_id))
        self.waiters = PullWaiters(setup.max_held)
        self.consumers = ConsumerRegistry(self.clock, 120.0)
        self.consumers.on_subscriptions = self.filters.register
        self.consumers.on_gone = self.filters.unregister
        self.producers = ProducerRegistry(self.clock, 120.0)
        self.locks = QueueLocks(self.clock)
        self.statistics = BrokerStatistics(CLUSTER, self.clock, self.topics.is_system)
        self.delays.on_delivered = self.statistics.delivered
        self.durability = Durability(setup.sync_timeout_s, self.dispatch)
        self.store.on_arrivals = self._arrived
        self.store.on_flushed = self.durability.flushed_from_thread
        self.store.on_flush_failed = self.durability.failed_from_thread
        self.store.on_committed = self.durability.committed_from_thread
        self.appends = 0
        self.closed = False
        self.started_ms = self.clock.now_ms()
        self.changing = ChangingConfig(
            self.saved("rocketline.settings.json", SavedChanges), BrokerConfig(store_root=str(ROOT)), self.clock
        )
        self._build_transactions()
        self.router = self._build_router()
        self.pops = self._build_pops()
        self.router.take(self._build_pop_router())
        self.router.take(operator_router(self._operator_parts()))

    def _open_store(self) -> MessageStore:
        setup = self.setup
        kind = FlushDiskType.SYNC_FLUSH if setup.sync_flush else FlushDiskType.ASYNC_FLUSH
        config = StoreConfig(
            log_segment_bytes=setup.log_segment_bytes,
            queue_segment_bytes=2000,
            index_slots=100,
            index_entries=500,
            transient_pool=setup.transient_pool_size > 0,
            transient_pool_size=setup.transient_pool_size,
            fail_without_buffer=setup.fail_without_buffer,
            flush=FlushConfig(disk_type=kind),
            retention=setup.retention,
            reads=setup.reads,
            ext=ExtQueueConfig(enabled=setup.bitmaps),
        )
        store = MessageStore(
            ROOT,
            config,
            STORE_HOST,
            disk=self.disk,
            clock=self.clock,
            tags_code_for=deliver_time_codes(setup.levels_ms),
            bitmap_for=self.filters.bitmap_for if setup.bitmaps else None,
        )
        self.after_crash = store.open().after_crash
        return store

    def saved(self, name: str, kind: type[Any]) -> SavedTable[Any]:
        return SavedTable(self.disk, ROOT / "config" / name, kind)

    def _build_transactions(self) -> None:
        config = self.setup.transactions
        ops = OpWriter(self.store, self.clock, STORE_HOST, self._stored, config.op_bytes)
        self.half_messages = HalfMessages(
            self.store, ops, self._stored, partial(postpone, timers=self.timers, delays=self.delays)
        )
        self.checker = TransactionChecker(
            config,
            CheckerParts(
                store=self.store,
                topics=self.topics,
                offsets=self.offsets,
                producers=self.producers,
                half_messages=self.half_messages,
                clock=self.clock,
                stored=self._stored,
                store_host=STORE_HOST,
                broker_name=BROKER,
            ),
        )

    def _build_router(self) -> Router:
        setup, random = self.setup, Random(1)
        writable = bool(setup.permission & WRITE)
        self.sends = sends = SendHandlers(
            SendParts(
                store=self.store,
                topics=self.topics,
                groups=self.groups,
                delays=self.delays,
                timers=self.timers,
                durability=self.durability,
                unique_ids=UniqueIds("10.9.8.7", self.clock),
                stored=self._stored,
                holds_locks=setup.holds_locks or self.locks.are_held,
                store_host=STORE_HOST,
                broker_name=BROKER,
                cluster=CLUSTER,
                region="DefaultRegion",
                trace_on=True,
                sync_flush=setup.sync_flush,
                random=random,
                statistics=self.statistics,
                half_messages=None if setup.transactions.refused else self.half_messages,
            )
        )
        self.selections = selections = Selections(
            self.filters, sql_enabled=setup.sql_enabled, filters_retries=setup.filters_retries
        )
        pulls = PullHandlers(
            PullParts(
                store=self.store,
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                consumers=self.consumers,
                waiters=self.waiters,
                selections=selections,
                readable=bool(setup.permission & READ),
                suspend_s=setup.long_polling_s,
                statistics=self.statistics,
                clock=self.clock,
                slave_read=setup.slave_read,
            )
        )
        return broker_router(
            sends,
            pulls,
            SendBackHandlers(
                self.store,
                self.topics,
                self.groups,
                self.delays,
                self._stored,
                self.durability if setup.sync_flush else None,
                writable=writable,
                random=random,
                statistics=self.statistics,
                on_failure=lambda header: self.on_failure(header),
            ),
            OffsetHandlers(self.store, self.topics, self.groups, self.offsets),
            QueryHandlers(self.store),
            ClientHandlers(self.topics, self.groups, self.consumers, self.producers, self.clock, selections),
            TopicHandlers(self.topics, self.offsets, self.store, self._topic_gone),
            GroupHandlers(self.groups, self.offsets),
            FileHandlers(self.topics, self.offsets, self.store, self._topic_gone),
            LockHandlers(self.locks, self.topics, self.groups),
            TimerHandlers(
                store=self.store,
                topics=self.topics,
                timers=self.timers,
                clock=self.clock,
                stored=self._stored,
                durability=self.durability if setup.sync_flush else None,
                broker_name=BROKER,
                region="DefaultRegion",
                max_delay_s=setup.timers.max_delay_s,
                recall_enabled=setup.recall_enabled,
                writable=writable,
            ),
            TransactionHandlers(
                self.half_messages,
                self.durability if setup.sync_flush else None,
                self.clock.now_ms,
                setup.transactions.timeout_ms,
                is_slave=setup.is_slave,
            ),
            ReplyHandlers(sends, self.producers, self.clock, setup.stores_replies),
        )

    def _build_pops(self) -> Pops:
        self.offsets.flushed_offset = lambda: self.store.flushed_offset
        pops = Pops(
            self.setup.pop,
            PopNeeds(
                store=self.store,
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                timers=self.timers,
                statistics=self.statistics,
                clock=self.clock,
                random=self.setup.pop_random,
                stored=self._stored,
                order_file=self.saved("consumerOrderInfo.json", OrderInfoTable),
                mode_file=self.saved("messageRequestMode.json", MessageRequestModeTable),
                store_host=STORE_HOST,
                broker_name=BROKER,
                cluster=CLUSTER,
                is_master=not self.setup.is_slave,
            ),
        )
        pops.load(after_crash=self.after_crash)
        return pops

    def _build_pop_router(self) -> Router:
        setup, pops = self.setup, self.pops
        return pop_router(
            PopHandlers(
                PopParts(
                    popping=pops.popping,
                    store=self.store,
                    topics=self.topics,
                    groups=self.groups,
                    selections=self.selections,
                    statistics=self.statistics,
                    clock=self.clock,
                    waiters=pops.waiters,
                    notifications=pops.notifications,
                    readable=bool(setup.permission & READ),
                    has_timers=setup.timers.enabled,
                    max_invisible_ms=setup.timers.max_delay_s * 1000,
                    revive_queue_count=setup.pop.revive_queue_count,
                )
            ),
            PopAckHandlers(
                store=self.store,
                topics=self.topics,
                offsets=self.offsets,
                checkpoints=pops.checkpoints,
                ordered=pops.ordered,
                statistics=self.statistics,
                clock=self.clock,
                durability=self.durability if setup.sync_flush else None,
                queue_free=pops.queue_free,
                broker_name=BROKER,
                revive_queue_count=setup.pop.revive_queue_count,
                max_invisible_ms=setup.timers.max_delay_s * 1000,
            ),
            AssignmentHandlers(
                self.topics,
                self.groups,
                self.consumers,
                pops.modes,
                TopicQueues([], RemotingClient(), self.topics, self.clock, BROKER),
                setup.pop.shares_queues,
            ),
        )

    def _operator_parts(self) -> OperatorParts:
        return OperatorParts(
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            delays=self.delays,
            consumers=self.consumers,
            producers=self.producers,
            waiters=self.waiters,
            statistics=self.statistics,
            clock=self.clock,
            broker_name=BROKER,
            address=ADDRESS,
            server_side_reset=self.setup.server_side_reset,
            timers=self.timers,
            config=self.changing,
            stored=self._stored,
            started_ms=self.started_ms,
        )

    def _stored(self) -> None:
        self.appends += 1

    def _arrived(self, entries: list[LogEntry]) -> None:
        self.waiters.on_arrivals(entries)
        self.delays.on_arrivals(entries)
        self.timers.on_arrivals()
        self.pops.on_arrivals(entries)

    def _topic_gone(self) -> None:
        self.waiters.answer_all()
        self.pops.topic_gone()

    def pass_time(self, seconds: float) -> None:
        """What a broker does by itself while time passes: timers and redeliveries, in steps of at most a second."""
        while True:
            for _ in range(3):
                self.dispatch()
                while self.timers.turn() == 0:
                    pass
                self.dispatch()
                self.pops.checkpoints.turn()
                while self.pops.reviver.turn() == 0:
                    pass
                self.dispatch()
            if seconds <= 0:
                return
            self.clock.advance(min(1.0, seconds))
            seconds -= min(1.0, seconds)

    def dispatch(self) -> None:
        """What a broker does after each round of appends, and after each flush until it stops."""
        if self.closed:
            return
        self.store.dispatch()
        self.waiters.answer_woken()
        self.pops.answer_woken()

    def peer(self, address: tuple[str, int] = ("192.0.2.5", 40001)) -> Peer:
        return Peer(self.router, address)

    def messages(self, topic: str, queue_id: int = 0, queue_offset: int = 0) -> list[MessageView]:
        """What a consumer finds in a queue from an offset on."""
        self.dispatch()
        found = self.store.read(topic, queue_id, queue_offset, 32)
        return [message for chunk in found.chunks for message in decode_messages(chunk)]

    def put_topic(self, name: str, queue_count: int = 4, perm: int = 6) -> None:
        self.topics.put([TopicConfig(name, queue_count, queue_count, perm)])

    def close(self) -> None:
        self.closed = True
        if isinstance(self.disk, GatedDisk):
            self.disk.gate.set()
        self.timers.close()
        self.store.close()


MakeParts = Callable[..., Parts]
"""Makes parts from the settings of a `Setup`."""


class MemoryTransport(asyncio.Transport):
    """The socket of a `Peer`: what the channel writes is kept."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__({"peername": address, "sockname": ("10.9.8.7", 10911)})
        self.written = bytearray()
        self.wrote = asyncio.Event()
        self.closing = False
        self.channel: Channel | None = None

    def write(self, data: Any) -> None:
        self.written += data
        self.wrote.set()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing and self.channel is not None:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.channel.connection_lost, None)

    def abort(self) -> None:
        self.close()


class Peer:
    """A client on a connection of its own."""

    def __init__(self, router: Router, address: tuple[str, int] = ("192.0.2.5", 40001)) -> None:
        self.transport = MemoryTransport(address)
        self.channel = Channel(router, Limits())
        self.transport.channel = self.channel
        self.channel.connection_made(self.transport)
        self._connection = Connection()
        self._received: list[Command] = []
        self._opaque = 0

    def send(self, *commands: Command) -> None:
        """Requests in one read of the server."""
        for command in commands:
            self._opaque += 1
            command.opaque = self._opaque
        self.channel.data_received(b"".join(map(frame_bytes, commands)))

    def received(self) -> list[Command]:
        """All that came back so far and was not looked at yet, notices of the broker included."""
        data = bytes(self.transport.written)
        self.transport.written.clear()
        self.transport.wrote.clear()
        taken, self._received = [*self._received, *self._connection.receive(data)], []
        return taken

    def ask(self, command: Command) -> Command:
        """The answer to a request that is answered at once."""
        self.send(command)
        answers = [answer for answer in self.received() if answer.is_response]
        assert len(answers) == 1, answers
        assert answers[0].opaque == command.opaque
        return answers[0]

    async def next(self) -> Command:
        """The next answer or notice, waited for."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := self.received()):
                await self.transport.wrote.wait()
        self._received = found[1:]
        return found[0]

    async def close(self) -> None:
        self.channel.close()
        await self.channel.wait_closed()
        await asyncio.sleep(0)


def send_request(
    topic: str = "orders",
    body: bytes = b"hello",
    *,
    code: int = RequestCode.SEND_MESSAGE_V2,
    queue_id: int = 0,
    properties: dict[str, str] | str | None = None,
    template: str = "TBW102",
    queue_count: int = 4,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    max_reconsume_times: int | None = None,
    batch: bool = False,
    flag: int = 0,
    **command: Any,
) -> Command:
    """A send as a producer makes it; `flag` is the message's, `command` goes to the Command."""
    if properties is None:
        properties = {"UNIQ_KEY": "7F0000010001AAAA"}
    header = SendMessageHeader(
        producer_group="producers",
        topic=topic,
        default_topic=template,
        default_topic_queue_nums=queue_count,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_ms=1_600_000_000_123,
        flag=flag,
        properties=properties if isinstance(properties, str) else encode_properties(properties),
        reconsume_times=reconsume_times,
        max_reconsume_times=max_reconsume_times,
        batch=batch,
    )
    ext = header.encode_long() if code == RequestCode.SEND_MESSAGE else header.encode()
    return Command(code, ext, body, **command)


def pull_request(
    topic: str = "orders",
    group: str = "readers",
    *,
    code: int = RequestCode.PULL_MESSAGE,
    queue_id: int = 0,
    queue_offset: int = 0,
    max_messages: int = 32,
    sys_flag: int = 0x4,
    commit_offset: int = 0,
    suspend_ms: int = 15_000,
    sub_version: int = 0,
    subscription: str | None = "*",
    expression_type: str | None = None,
    max_bytes: int | None = None,
) -> Command:
    """A pull with its subscription in the request, unless `sys_flag` says otherwise."""
    header = PullMessageHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,  # type: ignore[arg-type]
        max_msg_nums=max_messages,
        sys_flag=sys_flag,
        commit_offset=commit_offset,  # type: ignore[arg-type]
        suspend_ms=suspend_ms,
        sub_version=sub_version,
        subscription=subscription,
        expression_type=expression_type,
        max_msg_bytes=max_bytes,
    )
    return Command(code, header.encode())


def heartbeat(
    client_id: str = "client-1",
    group: str | None = "readers",
    subscriptions: list[SubscriptionData] | dict[str, str] | None = None,
    *,
    producers: tuple[str, ...] = (),
    version_ms: int = 1,
    model: str = "CLUSTERING",
) -> Command:
    """A heartbeat of one consumer group (`subscriptions`: expression by topic) and some producer groups."""
    if subscriptions is None:
        subscriptions = {"orders": "*"}
    if isinstance(subscriptions, dict):
        subscriptions = [
            build_subscription(topic, expression, version_ms=version_ms) for topic, expression in subscriptions.items()
        ]
    consumers = [ConsumerData(group, message_model=model, subscription_data_set=subscriptions)] if group else []
    data = HeartbeatData(client_id, [ProducerData(name) for name in producers], consumers)
    return Command(RequestCode.HEART_BEAT, {}, encode_body(data))


def fill(parts: Parts, count: int, *, topic: str = "orders", queue_id: int = 0, step_s: float = 1.0) -> None:
    """Messages in a queue, each stored a step after the one before."""
    peer = parts.peer()
    for _ in range(count):
        peer.ask(send_request(topic, queue_id=queue_id))
        parts.clock.advance(step_s)
    parts.dispatch()


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something holds that no event tells; fails when it never does."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)
