"""A push consumer at work: its parts, and what session and brokers ask of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from rocketline.client.consumer.assigned_queues import AssignedQueues
from rocketline.client.consumer.assignment import Strategy, allocate_averagely
from rocketline.client.consumer.delivery import ConcurrentDelivery
from rocketline.client.consumer.expression_check import check_expressions
from rocketline.client.consumer.handlers import Handler, RetryLater
from rocketline.client.consumer.offsets import BrokerOffsets, LocalOffsets, OffsetStore
from rocketline.client.consumer.pull_loop import PullLoop, PullSettings
from rocketline.client.consumer.queue_buffer import MIB
from rocketline.client.consumer.rebalancer import Rebalancer
from rocketline.client.consumer.retries import SendBack
from rocketline.client.consumer.start_offset import ConsumeFrom, StartFrom
from rocketline.client.consumer.subscription import Subscription
from rocketline.client.consumer_info import ConsumeDirectlyResult, ConsumerRunningInfo, ConsumeStatus, ProcessQueueInfo
from rocketline.client.session import ClientSession
from rocketline.client.tasks import OwnedTasks, repeat
from rocketline.errors import ConfigError, RouteNotFound, TopicNotExist
from rocketline.message import RETRY_PREFIX, RETRY_TOPIC, ConsumerOffset, MessageQueue, MessageView
from rocketline.protocol.bodies import ConsumerData, queue_key

log = logging.getLogger(__name__)


class MessageModel(Enum):
    """Who gets a message: one member of the group, or every one."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


@dataclass(frozen=True)
class PushOptions:
    """How a push consumer works; see PushConsumer for the meanings."""

    group: str
    model: MessageModel = MessageModel.CLUSTERING
    start_from: StartFrom = field(default_factory=lambda: StartFrom(ConsumeFrom.LAST))
    concurrency: int = 20
    batch_size: int = 1
    max_reconsume_times: int = 16
    consume_timeout_s: float = 15 * 60.0
    stop_timeout_s: float = 10.0
    pull: PullSettings = field(default_factory=PullSettings)
    max_topic_messages: int | None = None
    max_topic_mib: int | None = None
    strategy: Strategy = allocate_averagely
    offsets: OffsetStore | None = None
    offsets_folder: Path = field(default_factory=lambda: Path.home() / ".rocketmq_offsets")

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= 1000:
            raise ConfigError(f"concurrency {self.concurrency}: 1 to 1000 expected")
        if not 1 <= self.batch_size <= 1024:
            raise ConfigError(f"batch_size {self.batch_size}: 1 to 1024 expected")
        if self.max_reconsume_times < 0 or self.consume_timeout_s <= 0 or self.stop_timeout_s < 0:
            raise ConfigError("max_reconsume_times and stop_timeout start at 0, consume_timeout above 0")

    @property
    def is_broadcasting(self) -> bool:
        return self.model is MessageModel.BROADCASTING


class RunningConsumer:
    """Member of a group from `start` to `stop`. The tables of subscriptions and handlers stay the caller's."""

    def __init__(
        self,
        session: ClientSession,
        options: PushOptions,
        subscriptions: Mapping[str, Subscription],
        handlers: Mapping[str, Handler],
    ) -> None:
        group = options.group
        clustering = not options.is_broadcasting
        self._session = session
        self._options = options
        self._subscriptions = subscriptions
        self._started_ms = session.clock.now_ms()
        self._offsets = options.offsets or _offset_store(session, options)
        self._delivery = ConcurrentDelivery(
            group,
            handlers.get,
            self._progress,
            SendBack(session, group, options.max_reconsume_times) if clustering else None,
            session.clock,
            concurrency=options.concurrency,
            batch_size=options.batch_size,
            retry_here_s=session.timing.retry_here_s,
        )
        self.queues = AssignedQueues(
            session,
            group,
            subscriptions,
            options.pull,
            self._offsets,
            options.start_from,
            self._delivery,
            commits_with_pulls=clustering,
            wake=self.members_changed,
            on_change=self._assignment_changed,
        )
        self._rebalancer = Rebalancer(session, group, self.queues, options.strategy if clustering else None)
        self._tasks = OwnedTasks()

    async def start(self) -> None:
        """Join the group; returns when the first share of queues is being read."""
        self._session.add_consumer(self)
        await self._offsets.load()
        await self._find_routes()
        await check_expressions(self._session, self.group, self._subscriptions.values())
        self._delivery.start()
        await self._session.heartbeat()
        await self._rebalancer.rebalance()
        self._tasks.start(self._rebalancer.run(), f"rebalance {self.group}")
        self._tasks.start(repeat(self._options.consume_timeout_s, self._expire, "expiry"), f"expire {self.group}")

    async def stop(self) -> None:
        """No new pulls, time for running handlers, offsets committed, brokers told."""
        try:
            await self._tasks.cancel()
            await self.queues.stop_pulling()
            await self._delivery.stop(self._options.stop_timeout_s)
            await self._offsets.persist(self.queues.uncommitted(), wait=True)
        finally:
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
            raise errors[0]

    def subscriptions_changed(self, topic: str) -> None:
        """A topic was subscribed to, anew or no longer: tell the brokers, then take up or drop its queues."""
        self.queues.resubscribe(topic)
        self._tasks.start(self._announce(), f"announce {topic}")

    async def _announce(self) -> None:
        await self._session.heartbeat()
        self._rebalancer.wake()

    def _assignment_changed(self, topic: str) -> None:
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            subscription.announce_anew(self._session.clock.now_ms())
        self.queues.share_limits(self._options.max_topic_messages, self._options.max_topic_mib)
        self._tasks.start(self._session.heartbeat(), f"heartbeat for {topic}")

    def _progress(self, loop: PullLoop, offset: ConsumerOffset) -> None:
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
        )

    def route_changed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self._rebalancer.wake()

    def members_changed(self) -> None:
        self._rebalancer.wake()

    async def persist_offsets(self) -> None:
        await self._offsets.persist(self.queues.owned())

    async def reset_offsets(self, offsets: Mapping[MessageQueue, ConsumerOffset]) -> None:
        for queue, offset in offsets.items():
            if queue in self.queues.owned():
                log.warning("group %s: an operator set the offset of %s to %d", self.group, queue, offset)
                await self.queues.restart_at(queue, offset)

    def positions(self, topic: str) -> Mapping[MessageQueue, ConsumerOffset]:
        return self.queues.positions(topic)

    async def consume_directly(self, message: MessageView) -> ConsumeDirectlyResult:
        if message.topic.startswith(RETRY_PREFIX):
            message.topic = message.properties.get(RETRY_TOPIC, message.topic)
        started = self._session.clock.monotonic()
        error = await self._delivery.run_directly(message)
        spent_ms = round((self._session.clock.monotonic() - started) * 1000)
        if error is None:
            return ConsumeDirectlyResult("CR_SUCCESS", spent_ms)
        if isinstance(error, RetryLater):
            return ConsumeDirectlyResult("CR_LATER", spent_ms, str(error))
        return ConsumeDirectlyResult("CR_THROW_EXCEPTION", spent_ms, f"{type(error).__name__}: {error}")

    def running_info(self) -> ConsumerRunningInfo:
        options, pull = self._options, self._options.pull
        properties = {
            "PROP_NAMESERVER_ADDR": ";".join(self._session.name_server.addresses),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": "false",
            "PROP_THREADPOOL_CORE_SIZE": str(options.concurrency),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_CLIENT_VERSION": "V5_4_0",
            "consumerGroup": self.group,
            "messageModel": options.model.value,
            "consumeFromWhere": options.start_from.where.value,
            "consumeMessageBatchMaxSize": str(options.batch_size),
            "maxReconsumeTimes": str(options.max_reconsume_times),
            "pullBatchSize": str(pull.batch),
            "pullThresholdForQueue": str(pull.limits.max_messages),
            "pullThresholdSizeForQueue": str(pull.limits.max_mib),
            "consumeConcurrentlyMaxSpan": str(pull.limits.max_span),
        }
        failed = self._delivery.failed_count
        return ConsumerRunningInfo(
            properties,
            [subscription.data for subscription in self._subscriptions.values()],
            {queue_key(loop.queue): self._queue_info(loop) for loop in self.queues.loops()},
            status_table={topic: ConsumeStatus(consume_failed_msgs=failed.get(topic, 0)) for topic in self.topics},
        )

    def _queue_info(self, loop: PullLoop) -> ProcessQueueInfo:
        buffer = loop.buffer
        return ProcessQueueInfo(
            self._offsets.get(loop.queue) or 0,
            buffer.min_offset or 0,
            buffer.max_offset or 0,
            len(buffer),
            buffer.body_bytes // MIB,
            droped=loop.dropped,
            last_pull_timestamp=loop.last_pull_ms,
            last_consume_timestamp=loop.last_consume_ms,
        )


def _offset_store(session: ClientSession, options: PushOptions) -> OffsetStore:
    if options.is_broadcasting:
        return LocalOffsets(options.offsets_folder, session.client_id, options.group)
    return BrokerOffsets(session, options.group)
