"""A broker's parts on a disk in memory and a clock that stands still, and clients that talk to them.

A `Peer` is a real channel over a transport in memory: requests go in as frames and answers come out as frames, so a test
sees what a client would see, without a socket.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.support.patience import PATIENCE_S

from rocketline.auth import needs
from rocketline.auth.accounts import Accounts
from rocketline.auth.config import AuthConfig
from rocketline.auth.guard import AccessGuard
from rocketline.broker.address import BrokerAddress
from rocketline.broker.config import (
    MESSAGE_DELAY_LEVELS,
    BrokerConfig,
    FilterConfig,
    GroupConfigDefaults,
    PopConfig,
    TopicConfigDefaults,
    TransactionConfig,
    parse_delay_levels,
)
from rocketline.broker.handler_wiring import install_handlers
from rocketline.broker.handlers.send_back import FailureHook
from rocketline.broker.parts import BrokerParts, Environment, OwnerCallbacks
from rocketline.clock import ManualClock
from rocketline.message import MessageView
from rocketline.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    TopicConfig,
    encode_body,
)
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.connection import Connection, frame_bytes
from rocketline.protocol.headers import PullMessageHeader, SendMessageHeader
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.records import decode_messages
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
from rocketline.store.files.disk import Disk
from rocketline.store.flush.flusher import BackgroundTask, ThreadWorker, WorkerFactory
from rocketline.testing.disks import FaultyDisk, MemoryDisk
from rocketline.transport import DEFAULT_LIMITS, Channel, Limits, RemotingClient, Router

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


class NoThread:
    """A worker that never works: a test says when the store flushes. With SYNC_FLUSH only what is on disk can be read, so
    that with threads a broker's answers depend on how far those are."""

    def __init__(self, task: BackgroundTask) -> None:
        pass

    def start(self) -> None:
        pass

    def wake(self) -> None:
        pass

    def stop(self) -> None:
        pass


@dataclass
class Setup:
    """What differs from test to test."""

    auto_create_topics: bool = True
    auto_create_groups: bool = True
    permission: int = 6
    sync_flush: bool = False
    sync_timeout_s: float = PATIENCE_S
    max_held: int = 100
    long_polling: bool = True
    short_polling_ms: int = 1000
    delay_levels: str = MESSAGE_DELAY_LEVELS
    server_side_reset: bool = True
    log_segment_bytes: int = 1 << 20
    transient_pool_size: int = 0
    """Buffers of the transient pool; 0: none is used."""
    fail_without_buffer: bool = False
    slave_read: bool = False
    corrects_as_slave: bool = False
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    is_slave: bool = False
    stores_replies: bool = True
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    reads: ReadConfig = field(default_factory=ReadConfig)
    sql_enabled: bool = True
    filters_retries: bool = False
    ext_queues: bool = False
    bitmaps: bool = False
    """Of filters, in extended consume queues."""
    timers: TimerConfig = field(default_factory=lambda: TimerConfig(log_segment_bytes=52 * 400))
    timer_slots: int = 2 * 7 * 24 * 3600
    recall_enabled: bool = True
    pop: PopConfig = field(default_factory=PopConfig)
    random: Random = field(default_factory=lambda: Random(1))
    """Decides, among others, which pops look at redeliveries first, and at which queue."""
    limits: Limits = DEFAULT_LIMITS
    clock: ManualClock = field(default_factory=ManualClock)
    disk: FaultyDisk = field(default_factory=lambda: GatedDisk(MemoryDisk()))
    workers: WorkerFactory = ThreadWorker
    accounts: Accounts | None = None
    """Who may use the broker; None: everybody. A peer is who its channel's identity says."""

    def config(self) -> BrokerConfig:
        return BrokerConfig(
            name=BROKER,
            cluster=CLUSTER,
            broker_id=1 if self.is_slave else 0,
            store_root=str(ROOT),
            permission=self.permission,
            max_held_pulls=self.max_held,
            long_polling=self.long_polling,
            short_polling_ms=self.short_polling_ms,
            slave_read=self.slave_read,
            corrects_as_slave=self.corrects_as_slave,
            fails_fast=False,
            delay_levels=self.delay_levels,
            recall_enabled=self.recall_enabled,
            recall_when_read_only=False,
            server_side_reset=self.server_side_reset,
            stores_replies=self.stores_replies,
            topics=TopicConfigDefaults(auto_create=self.auto_create_topics),
            groups=GroupConfigDefaults(auto_create=self.auto_create_groups),
            filters=FilterConfig(
                sql_enabled=self.sql_enabled, bitmaps=self.bitmaps, filters_retries=self.filters_retries
            ),
            transactions=self.transactions,
            pop=self.pop,
            store=self._store_config(),
        )

    def _store_config(self) -> StoreConfig:
        kind = FlushDiskType.SYNC_FLUSH if self.sync_flush else FlushDiskType.ASYNC_FLUSH
        return StoreConfig(
            log_segment_bytes=self.log_segment_bytes,
            queue_segment_bytes=2000,
            index_slots=100,
            index_entries=500,
            transient_pool=self.transient_pool_size > 0,
            transient_pool_size=self.transient_pool_size,
            fail_without_buffer=self.fail_without_buffer,
            flush=FlushConfig(disk_type=kind, sync_timeout_ms=int(self.sync_timeout_s * 1000)),
            retention=self.retention,
            reads=self.reads,
            ext=ExtQueueConfig(enabled=self.ext_queues),
            timers=self.timers,
        )


class Parts(BrokerParts):
    """The parts of a broker as it builds them, and a router over all of them."""

    clock: ManualClock
    disk: FaultyDisk

    def __init__(self, setup: Setup | None = None) -> None:
        self.setup = setup = setup or Setup()
        self.on_failure: FailureHook = lambda header: None
        self.appends = 0
        self.closed = False
        super().__init__(setup.config(), self._environment())
        self.router = Router()
        if setup.accounts is not None:
            self._ask_for(setup.accounts)
        self.open_store()
        self.build()
        install_handlers(self.router, self)

    def _ask_for(self, accounts: Accounts) -> None:
        self.accounts, router = accounts, self.router
        config = AuthConfig(enabled=True)
        router.guard = self.access = AccessGuard(
            accounts, config, needs.BROKER, needs.Server(CLUSTER), router.serves, self.clock
        )

    def _environment(self) -> Environment:
        setup = self.setup
        return Environment(
            root=ROOT,
            disk=setup.disk,
            clock=setup.clock,
            random=setup.random,
            address=BrokerAddress("10.9.8.7", "10.9.8.7", 10911),
            client=RemotingClient(),
            owner=OwnerCallbacks(self._stored, self.dispatch, on_failure=lambda header: self.on_failure(header)),
            workers=setup.workers,
            timer_slots=setup.timer_slots,
            limits=setup.limits,
        )

    def _stored(self) -> None:
        self.appends += 1

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

    def peer(self, address: tuple[str, int] = ("192.0.2.5", 40001), account: str = "") -> Peer:
        peer = Peer(self.router, address)
        peer.channel.identity = account
        return peer

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
        self.writes = 0
        self.wrote = asyncio.Event()
        self.closing = False
        self.channel: Channel | None = None

    def write(self, data: Any) -> None:
        self.written += data
        self.writes += 1
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

    def __init__(
        self,
        router: Router,
        address: tuple[str, int] = ("192.0.2.5", 40001),
        channel_type: type[Channel] = Channel,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.transport = MemoryTransport(address)
        self.channel = channel_type(router, limits)
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
        if self.channel.router.fast_path is not None:
            self.channel.router.fast_path.settle_all()  # those of many peers wait for the end of the turn
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
    is_long = code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
    ext = header.encode_long() if is_long else header.encode()
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
    bulk: bool = False,
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
        bulk=bulk,
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
