"""A running push consumer: its parts, and its answers to session and brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from rocketline.client.consumer.group.assignment import Strategy
from rocketline.client.consumer.group.assignment_query import AssignmentQuery
from rocketline.client.consumer.group.consume_observer import ConsumeObserver
from rocketline.client.consumer.group.expression_check import check_expressions
from rocketline.client.consumer.group.offsets import OffsetStore, offset_store
from rocketline.client.consumer.group.rebalancer import Rebalancer
from rocketline.client.consumer.group.start_offset import StartFrom
from rocketline.client.consumer.group.subscription import Subscription
from rocketline.client.consumer.pop.pop_loop import PopSettings
from rocketline.client.consumer.pop.pop_queues import BrokerSharedQueues, PopRetryNames
from rocketline.client.consumer.pop.push_pops import PushPops
from rocketline.client.consumer.push.assigned_queues import AssignedQueues, Receiver
from rocketline.client.consumer.push.delivery import MAX_CONCURRENCY, ConcurrentDelivery, Delivery, Handling, Source
from rocketline.client.consumer.push.handlers import Handler, RetryLater, Rollback, SuspendQueue
from rocketline.client.consumer.push.held_locks import HeldLocks
from rocketline.client.consumer.push.locked_queues import LockedQueues
from rocketline.client.consumer.push.orderly import Ordering, OrderlyDelivery
from rocketline.client.consumer.push.pull_loop import PullLoop, PullSettings, QueueReading
from rocketline.client.consumer.push.queue_buffer import MIB
from rocketline.client.consumer.push.retries import SendBack
from rocketline.client.consumer_info import ConsumeDirectlyResult, ConsumerRunningInfo, ProcessQueueInfo
from rocketline.client.session import ClientSession
from rocketline.client.tasks import OwnedTasks, repeat
from rocketline.errors import ConfigError, RouteNotFound, TopicNotExist
from rocketline.message import RETRY_PREFIX, RETRY_TOPIC, ConsumerOffset, MessageQueue, MessageView
from rocketline.protocol.bodies import ConsumerData, queue_key

log = logging.getLogger(__name__)

NO_LIMIT = (1 << 31) - 1
"""Java's Integer.MAX_VALUE, also on the wire."""


class MessageModel(Enum):
    """Who gets a message: one member of the group, or every one."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


@dataclass(frozen=True, kw_only=True)
class PushOptions:
    """How a push consumer works; see PushConsumer for the meanings, and for what is usual."""

    group: str
    """Its name on the wire, namespace included."""
    model: MessageModel
    start_from: StartFrom
    concurrency: int
    batch_size: int
    ordering: Ordering | None
    """How messages are delivered in order; None: without order."""
    max_reconsume_times: int
    consume_timeout_s: float
    stop_s: float
    pull: PullSettings
    strategy: Strategy
    pop: PopSettings | None
    """How to pop, if brokers share the queues out."""
    offsets: OffsetStore | Path | None
    unit_mode: bool

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= MAX_CONCURRENCY:
            raise ConfigError(f"concurrency {self.concurrency}: 1 to {MAX_CONCURRENCY} expected")
        if not 1 <= self.batch_size <= 1024:
            raise ConfigError(f"batch_size {self.batch_size}: 1 to 1024 expected")
        if self.max_reconsume_times < -1:
            raise ConfigError(f"max_reconsume_times {self.max_reconsume_times}: -1 or more expected")

    @property
    def ordered(self) -> bool:
        return self.ordering is not None

    @property
    def retry_limit(self) -> int:
        """How often a message may fail before it goes to the dead letters."""
        if self.max_reconsume_times >= 0:
            return self.max_reconsume_times
        return NO_LIMIT if self.ordered else 16

    @property
    def is_broadcasting(self) -> bool:
        return self.model is MessageModel.BROADCASTING

    @property
    def asks_brokers(self) -> bool:
        """Whether brokers share the queues out; in order, and for all members, that is never theirs to do."""
        return self.pop is not None and not self.ordered and not self.is_broadcasting


class PushMember:
    """Member of a group from `start` to `stop`. The tables of subscriptions and handlers stay the caller's."""

    def __init__(
        self,
        session: ClientSession,
        options: PushOptions,
        subscriptions: MutableMapping[str, Subscription],
        handlers: Mapping[str, Handler],
        observer: ConsumeObserver | None = None,
    ) -> None:
        """Subscriptions go by topics as on the wire, handlers by topics as their users know them."""
        group = options.group
        self._observer = observer = observer or ConsumeObserver(group, session.clock)
        clustering = not options.is_broadcasting
        self._session = session
        self._options = options
        self._subscriptions = subscriptions
        self._started_ms = session.clock.now_ms()
        self._offsets = offset_store(session, group, options.offsets, local=options.is_broadcasting)
        self._delivery: Delivery
        self.queues: AssignedQueues
        reading = QueueReading(session, group, subscriptions, options.pull, self._offsets, options.start_from, observer)
        handling = Handling(group, handlers.get, session.clock, observer, options.concurrency, options.batch_size)
        if options.ordering is not None:
            self._build_ordered(reading, handling, options.ordering)
        else:
            give_back = self._send_back() if clustering else None
            self._delivery = ConcurrentDelivery(handling, self._progress, give_back, session.timing.retry_here_s)
            self.queues = self._plain_queues(reading)
        strategy = options.strategy if clustering else None
        self.popping: PushPops | None = None
        if options.pop is not None and options.asks_brokers:
            self.popping = popping = PushPops(
                session,
                subscriptions,
                handling,
                options.pop,
                self._send_back(),
                gate=self.queues.gate,
                retry_limit=options.retry_limit,
            )
            query = AssignmentQuery(session, group, options.strategy)
            shared = BrokerSharedQueues(query, group, subscriptions, self.queues, popping.queues, self.members_changed)
            self._rebalancer = Rebalancer(
                session, group, shared, strategy, stalled=self.queues.stalled, ask=shared.share
            )
        else:
            self._rebalancer = Rebalancer(session, group, self.queues, strategy, stalled=self.queues.stalled)
        self._tasks = OwnedTasks()

    def _send_back(self) -> SendBack:
        return SendBack(self._session, self.group, self._options.retry_limit, self._observer.namespace)

    def _plain_queues(self, reading: QueueReading) -> AssignedQueues:
        receiver: Receiver = self._delivery
        if self._options.asks_brokers:
            receiver = PopRetryNames(self._delivery, self.group, self._observer.namespace)
        return AssignedQueues(
            reading,
            receiver,
            commits_with_pulls=not self._options.is_broadcasting,
            wake=self.rebalance_now,
            on_change=self._assignment_changed,
        )

    def _build_ordered(self, reading: QueueReading, handling: Handling, ordering: Ordering) -> None:
        """The parts of an ordered consumer; a broadcasting one shares its queues with nobody and locks nothing."""
        session, options = self._session, self._options
        locks = None if options.is_broadcasting else HeldLocks(session, self.group)
        send_back = self._send_back()
        self._delivery = delivery = OrderlyDelivery(
            handling,
            self._progress,
            send_back.as_new_message,
            send_back if locks is not None else None,
            ordering,
            holds=locks.is_valid if locks is not None else lambda queue: True,
            max_reconsume_times=options.retry_limit,
            turn_s=session.timing.turn_s,
        )
        reading = replace(reading, settings=replace(options.pull, max_span=None))
        if locks is None:
            self.queues = self._plain_queues(reading)
            return
        self.queues = LockedQueues(
            reading, delivery, locks, wake=self.rebalance_now, on_change=self._assignment_changed
        )

    async def start(self) -> None:
        """Join the group; returns when the first share of queues is being read."""
        await self._offsets.load()
        await self._find_routes()
        await check_expressions(self._session, self.group, self._subscriptions.values())
        # Not earlier: heartbeats, which go to every broker that a route newly names, would announce what is not checked.
        self._session.add_consumer(self)
        self._delivery.start()
        self.queues.start()
        if self.popping is not None:
            self.popping.start()
        await self._session.join()
        await self._rebalancer.rebalance()
        self._tasks.start(self._rebalancer.run(), f"rebalance {self.group}")
        self._tasks.start(repeat(self._options.consume_timeout_s, self._expire, "expiry"), f"expire {self.group}")

    async def stop(self) -> None:
        """No new pulls, time for running handlers, offsets committed, brokers told."""
        try:
            await self._tasks.cancel()
            await self.queues.stop_pulling()
            if self.popping is not None:
                await self.popping.stop(self._options.stop_s)
            await self._delivery.stop(self._options.stop_s)
            await self._offsets.persist(self.queues.uncommitted(), wait=True)
        finally:
            await self.queues.release()
            await self._session.remove_consumer(self)

    async def _find_routes(self) -> None:
        """A topic may be created later; name servers nobody can reach are a mistake to be told about now."""
        topics = sorted(self.topics)
        results = await asyncio.gather(*map(self._session.routes.find, topics), return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in errors:
            if not isinstance(error, RouteNotFound):
                raise error
        for topic, result in zip(topics, results):
            if isinstance(result, RouteNotFound) and not topic.startswith(RETRY_PREFIX):
                log.warning("group %s waits for topic %s: %s", self.group, topic, result)
        if len(errors) == len(topics) and not any(isinstance(error.__cause__, TopicNotExist) for error in errors):
            # The user knows the own topic, not the retry topic of the group.
            raise next((error for topic, error in zip(topics, errors) if not topic.startswith(RETRY_PREFIX)), errors[0])

    def resize(self, options: PushOptions) -> None:
        """Run another number of handlers at once from now on."""
        self._options = options
        self._delivery.resize(options.concurrency)
        if self.popping is not None:
            self.popping.resize(options.concurrency)

    @property
    def owned(self) -> set[MessageQueue]:
        """The queues that are read; popped ones have the number -1 when they are all queues of a broker."""
        return self.queues.owned() | (self.popping.queues.owned() if self.popping is not None else set())

    def subscriptions_changed(self, topic: str) -> None:
        """A topic was subscribed to, anew or no longer: tell the brokers, then take up or drop its queues."""
        self.queues.resubscribe(topic)
        if self.popping is not None:
            self.popping.queues.resubscribe(self.group, topic)
        self._tasks.start(self._announce(), f"announce {topic}")

    async def _announce(self) -> None:
        await self._session.heartbeat()
        self.rebalance_now()

    def _assignment_changed(self, topic: str) -> None:
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            subscription.announce_anew(self._session.clock.now_ms())
        self.queues.share_limits()
        self._tasks.start(self._session.heartbeat(), f"heartbeat for {topic}")

    def _progress(self, loop: Source, offset: ConsumerOffset) -> None:
        self._offsets.update(loop.queue, offset)

    async def _expire(self) -> None:
        for loop in self.queues.loops():
            await self._delivery.expire(loop, self._options.consume_timeout_s)

    @property
    def group(self) -> str:
        return self._options.group

    @property
    def topics(self) -> set[str]:
        return set(self._subscriptions)

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            self.group,
            "CONSUME_PASSIVELY",
            self._options.model.value,
            self._options.start_from.where.value,
            [subscription.data for subscription in self._subscriptions.values()],
            self._options.unit_mode,
        )

    def route_changed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self._rebalancer.wake()

    def members_changed(self) -> None:
        self._rebalancer.wake()

    def rebalance_now(self) -> None:
        self._rebalancer.wake(urgent=True)

    async def persist_offsets(self) -> None:
        await self._offsets.persist(self.queues.committable())

    async def reset_offsets(self, offsets: Mapping[MessageQueue, ConsumerOffset]) -> None:
        held = {loop.queue for loop in self.queues.held()}
        for queue, offset in offsets.items():
            if queue in held:
                log.warning("group %s: an operator set the offset of %s to %d", self.group, queue, offset)
                await self.queues.restart_at(queue, offset)

    def positions(self, topic: str) -> Mapping[MessageQueue, ConsumerOffset]:
        return self.queues.positions(topic)

    async def consume_directly(self, message: MessageView) -> ConsumeDirectlyResult:
        if message.topic.startswith(RETRY_PREFIX):
            message.topic = message.properties.get(RETRY_TOPIC, message.topic)
        message.topic = self._observer.namespace.unwrap(message.topic)
        started = self._session.clock.monotonic()
        error = await self._delivery.run_directly(message)
        spent_ms = round((self._session.clock.monotonic() - started) * 1000)
        ordering = self._options.ordering
        auto_commit = ordering is None or ordering.auto_commit
        result = ConsumeDirectlyResult("CR_SUCCESS", spent_ms, None, ordering is not None, auto_commit)
        if isinstance(error, RetryLater | SuspendQueue):
            result.consume_result = "CR_ROLLBACK" if isinstance(error, Rollback) else "CR_LATER"
            result.remark = str(error)
        elif error is not None:
            result.consume_result = "CR_THROW_EXCEPTION"
            result.remark = f"{type(error).__name__}: {error}"
        return result

    def running_info(self) -> ConsumerRunningInfo:
        options, pull = self._options, self._options.pull
        properties = {
            "PROP_NAMESERVER_ADDR": ";".join(self._session.name_server.addresses),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": "true" if options.ordered else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(options.concurrency),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_CLIENT_VERSION": "V5_4_0",
            "consumerGroup": self.group,
            "messageModel": options.model.value,
            "consumeFromWhere": options.start_from.where.value,
            "consumeMessageBatchMaxSize": str(options.batch_size),
            "maxReconsumeTimes": str(options.max_reconsume_times),
            "pullBatchSize": str(pull.batch),
            "pullThresholdForQueue": str(pull.max_messages),
            "pullThresholdSizeForQueue": str(pull.max_mib),
            "consumeConcurrentlyMaxSpan": str(pull.max_span),
            "suspendCurrentQueueTimeMillis": str(round((options.ordering or Ordering()).suspend_s * 1000)),
        }
        return ConsumerRunningInfo(
            properties,
            [subscription.data for subscription in self._subscriptions.values()],
            {queue_key(loop.queue): self._queue_info(loop) for loop in self.queues.held()},
            self.popping.describe() if self.popping is not None else {},
            {topic: self._observer.stats.status(topic) for topic in self.topics},
        )

    def _queue_info(self, loop: PullLoop) -> ProcessQueueInfo:
        buffer = loop.buffer
        committed = self._offsets.get(loop.queue)
        info = ProcessQueueInfo(
            loop.undone_offset if committed is None else committed,
            buffer.min_offset or 0,
            buffer.max_offset or 0,
            len(buffer),
            buffer.body_bytes // MIB,
            droped=loop.leaving,
            last_pull_timestamp=loop.last_pull_ms,
            last_consume_timestamp=loop.last_consume_ms,
        )
        self._delivery.describe(loop, info)
        self.queues.describe(loop, info)
        return info
