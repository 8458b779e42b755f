"""An open pull consumer: subscriptions or assigned queues, progress, answers to session and brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocketline.client.consumer.group.assignment import Strategy, allocate_averagely
from rocketline.client.consumer.group.consume_observer import ConsumeObserver
from rocketline.client.consumer.group.expression_check import check_expressions
from rocketline.client.consumer.group.offsets import OffsetStore, offset_store
from rocketline.client.consumer.group.rebalancer import Rebalancer
from rocketline.client.consumer.group.start_offset import ConsumeFrom, StartFrom
from rocketline.client.consumer.group.subscription import Sql, Subscription
from rocketline.client.consumer.pull.listeners import QueuesListener, RouteListeners, tell
from rocketline.client.consumer.pull.polled_queues import PolledQueues
from rocketline.client.consumer.push.pull_loop import PullLoop, PullSettings, QueueReading
from rocketline.client.consumer.push.push_member import MessageModel
from rocketline.client.consumer.push.queue_buffer import MIB
from rocketline.client.consumer_info import ConsumeDirectlyResult, ConsumerRunningInfo, ProcessQueueInfo
from rocketline.client.session import ClientSession
from rocketline.client.tasks import OwnedTasks
from rocketline.errors import ClientError, GroupNotExist, NoPermission, RequestRejected, RouteNotFound, TopicNotExist
from rocketline.message import ConsumerOffset, MessageQueue, MessageView
from rocketline.protocol.bodies import ConsumerData, queue_key
from rocketline.protocol.codes import ResponseCode

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PullMemberOptions:
    """How a pull consumer works; see PullConsumer for the meanings."""

    group: str
    """Its name on the wire, namespace included."""
    model: MessageModel = MessageModel.CLUSTERING
    start_from: StartFrom = field(default_factory=lambda: StartFrom(ConsumeFrom.LAST))
    auto_commit: bool = True
    pull: PullSettings = PullSettings()
    strategy: Strategy = allocate_averagely
    on_added: QueuesListener | None = None
    on_dropped: QueuesListener | None = None
    offsets: OffsetStore | Path | None = None

    @property
    def is_broadcasting(self) -> bool:
        return self.model is MessageModel.BROADCASTING


class PullMember:
    """One pull consumer between `open` and `close`. It subscribes or is assigned queues, never both."""

    def __init__(
        self, session: ClientSession, options: PullMemberOptions, observer: ConsumeObserver | None = None
    ) -> None:
        self._session = session
        self._observer = observer or ConsumeObserver(options.group, session.clock)
        self._options = options
        self._subscriptions: dict[str, Subscription] = {}
        self._assigned: frozenset[MessageQueue] | None = None
        self._offsets = offset_store(session, options.group, options.offsets, local=options.is_broadcasting)
        reading = QueueReading(
            session,
            options.group,
            self._subscriptions,
            options.pull,
            self._offsets,
            options.start_from,
            self._observer,
        )
        self.queues = PolledQueues(
            reading,
            auto_commit=options.auto_commit,
            wake=self.members_changed,
            on_change=self._assignment_changed,
        )
        self.closing = False
        self._rebalancer: Rebalancer | None = None
        self._tasks = OwnedTasks()
        self.route_listeners = RouteListeners(session, self._tasks)

    async def open(self) -> None:
        await self._offsets.load()
        self._session.add_consumer(self)

    async def close(self, *, clean: bool) -> None:
        """Give everything away; unless `clean`, what the last poll returned does not count as done."""
        self.closing = True
        self.queues.changed()  # wakes a poll that waits
        try:
            await self._tasks.cancel()
            await self.queues.stop_pulling()
            if self.queues.owned():
                await tell(self.queues.on_dropped, sorted(self.queues.owned()))
            if self._options.auto_commit:
                if clean:
                    self.queues.settle()
                await self._offsets.persist(self.queues.uncommitted(), wait=True)
        finally:
            await self._session.remove_consumer(self)

    # What is read

    async def subscribe(self, topic: str, expression: str | Sql) -> None:
        """Join the group for a topic; the first time this returns when the first share of queues is being read."""
        if self._assigned is not None:
            raise ClientError(f"consumer {self.group!r} was assigned queues: make another one to subscribe to topics")
        subscription = self._subscription(topic, expression)
        await self._find_route(topic)
        await check_expressions(self._session, self.group, [subscription])
        known = self._subscriptions.get(topic)
        self._subscriptions[topic] = subscription
        if known is not None and not known.selects_like(subscription):
            self.queues.select_anew(topic)
        try:
            await self._session.join()
        except NoPermission:
            self._subscriptions.pop(topic)
            raise
        if self._rebalancer is not None:
            self._rebalancer.wake()
            return
        options = self._options
        self.queues.on_added, self.queues.on_dropped = options.on_added, options.on_dropped
        strategy = None if options.is_broadcasting else options.strategy
        rebalancer = self._rebalancer = Rebalancer(
            self._session, self.group, self.queues, strategy, stalled=self.queues.stalled
        )
        try:
            await rebalancer.rebalance()
        finally:
            if not self.closing:  # also when the caller has no more time for the first round: the next ones will come
                self._tasks.start(rebalancer.run(), f"rebalance {self.group}")

    def unsubscribe(self, topic: str) -> None:
        if self._assigned is None and self._subscriptions.pop(topic, None) is not None:
            self._tasks.start(self._session.heartbeat(), f"heartbeat without {topic}")
            self.members_changed()

    def assign(self, queues: Collection[MessageQueue], expression: str | Sql) -> None:
        """Read exactly these queues; those that were read before go on undisturbed."""
        if self._assigned is None and self._rebalancer is not None:
            raise ClientError(f"consumer {self.group!r} subscribes to topics: make another one to be assigned queues")
        topics = {queue.topic for queue in queues}
        new = {topic: self._subscription(topic, expression) for topic in topics}
        changed = [topic for topic in topics & set(self._subscriptions) if not self._same(new[topic])]
        self._assigned = self.queues.allowed = frozenset(queues)
        for topic in set(self._subscriptions) - topics:
            del self._subscriptions[topic]
        for topic in topics:
            if topic in changed or topic not in self._subscriptions:
                self._subscriptions[topic] = new[topic]
        for topic in changed:
            self.queues.select_anew(topic)
        self.queues.changed()
        self._tasks.start(self._session.heartbeat(), "heartbeat")
        if self._rebalancer is None:
            self.queues.sought_start.stores = False  # nobody else reads them by our offsets
            self._rebalancer = Rebalancer(
                self._session, self.group, self.queues, None, stalled=self.queues.stalled, fixed=self._assigned_of
            )
            self._tasks.start(self._rebalancer.run(), f"read for {self.group}")
        self._rebalancer.wake()

    def _assigned_of(self, topic: str) -> list[MessageQueue]:
        return [queue for queue in self._assigned or () if queue.topic == topic]

    def _subscription(self, topic: str, expression: str | Sql) -> Subscription:
        known = self._subscriptions.get(topic)
        now_ms = self._session.clock.now_ms()
        return Subscription(topic, expression, max(now_ms, known.data.sub_version + 1) if known else now_ms)

    def _same(self, subscription: Subscription) -> bool:
        return self._subscriptions[subscription.topic].selects_like(subscription)

    async def _find_route(self, topic: str) -> None:
        """A topic may be created later; name servers nobody can reach are a mistake to be told about now."""
        try:
            await self._session.routes.find(topic)
        except RouteNotFound as error:
            if not isinstance(error.__cause__, TopicNotExist):
                raise
            log.warning("group %s waits for topic %s: %s", self.group, topic, error)

    @property
    def has_queues_to_come(self) -> bool:
        """Whether a poll makes sense: something is subscribed to or assigned."""
        return bool(self._subscriptions)

    @property
    def assigned(self) -> set[MessageQueue]:
        return set(self._assigned) if self._assigned is not None else self.queues.owned()

    def require(self, queues: Collection[MessageQueue]) -> None:
        """ClientError unless all of these are ours."""
        strangers = sorted(set(queues) - self.assigned)
        if strangers:
            names = ", ".join(map(str, strangers[:5]))
            raise ClientError(
                f"not assigned to consumer {self.group!r}, which reads {len(self.assigned)} queues: {names}"
            )

    # Progress

    def settle(self) -> None:
        """The caller asks for more: what it got before is done."""
        self.queues.settle()

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store progress and wait until that is certain."""
        owned = self.queues.owned()
        for queue, offset in offsets.items():
            if queue in owned or self._options.is_broadcasting:
                self._offsets.update(queue, ConsumerOffset(offset), may_decrease=True)
        if self._options.is_broadcasting:
            await self._offsets.persist(offsets, wait=True)
            return
        commits = (self._commit(queue, ConsumerOffset(offset)) for queue, offset in sorted(offsets.items()))
        for result in await asyncio.gather(*commits, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _commit(self, queue: MessageQueue, offset: ConsumerOffset) -> None:
        broker = await self._session.broker_of(queue)
        try:
            await broker.commit_offset(self.group, queue, offset, oneway=False)
        except GroupNotExist:
            # A broker learns of a group by its heartbeat, which may not have arrived yet.
            await self._session.heartbeat(broker.address)
            await broker.commit_offset(self.group, queue, offset, oneway=False)

    async def committed(self, queue: MessageQueue) -> ConsumerOffset | None:
        return await self._offsets.read(queue)

    async def persist_offsets(self) -> None:
        if self._options.auto_commit:
            await self._offsets.persist(self.queues.owned())

    async def reset_offsets(self, offsets: Mapping[MessageQueue, ConsumerOffset]) -> None:
        for queue, offset in offsets.items():
            if queue in self.assigned:
                log.warning("group %s: an operator set the offset of %s to %d", self.group, queue, offset)
                self._offsets.update(queue, offset, may_decrease=True)
                self.queues.seek(queue, offset)

    def positions(self, topic: str) -> Mapping[MessageQueue, ConsumerOffset]:
        queues = [queue for queue in self.queues.owned() if queue.topic == topic]
        return {queue: ConsumerOffset(self.queues.position(queue) or 0) for queue in queues}

    # What session and brokers ask

    @property
    def group(self) -> str:
        return self._options.group

    @property
    def topics(self) -> set[str]:
        return {*self._subscriptions, *self.route_listeners.topics}

    def consumer_data(self) -> ConsumerData:
        options = self._options
        subscriptions = [subscription.data for subscription in self._subscriptions.values()]
        start = options.start_from.where.value
        return ConsumerData(self.group, "CONSUME_ACTIVELY", options.model.value, start, subscriptions)

    def _assignment_changed(self, topic: str) -> None:
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            subscription.announce_anew(self._session.clock.now_ms())
            self._tasks.start(self._session.heartbeat(), f"heartbeat for {topic}")

    def route_changed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self.members_changed()
        self.route_listeners.route_changed(topic)

    def members_changed(self) -> None:
        if self._rebalancer is not None:
            self._rebalancer.wake()

    async def consume_directly(self, message: MessageView) -> ConsumeDirectlyResult:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"group {self.group!r} pulls: it has no handler to run")

    def running_info(self) -> ConsumerRunningInfo:
        options, pull = self._options, self._options.pull
        return ConsumerRunningInfo(
            {
                "PROP_NAMESERVER_ADDR": ";".join(self._session.name_server.addresses),
                "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
                "PROP_CLIENT_VERSION": "V5_4_0",
                "consumerGroup": self.group,
                "messageModel": options.model.value,
                "consumeFromWhere": options.start_from.where.value,
                "autoCommit": str(options.auto_commit).lower(),
                "pullBatchSize": str(pull.batch),
                "pullThresholdForAll": str(pull.max_total_messages),
                "pullThresholdForQueue": str(pull.max_messages),
                "pullThresholdSizeForQueue": str(pull.max_mib),
                "consumeMaxSpan": str(pull.max_span),
            },
            [subscription.data for subscription in self._subscriptions.values()],
            {queue_key(loop.queue): self._queue_info(loop) for loop in self.queues.held()},
            status_table={topic: self._observer.stats.status(topic) for topic in self._subscriptions},
        )

    def _queue_info(self, loop: PullLoop) -> ProcessQueueInfo:
        buffer = loop.buffer
        return ProcessQueueInfo(
            self.queues.position(loop.queue) or 0,
            buffer.min_offset or 0,
            buffer.max_offset or 0,
            len(buffer),
            buffer.body_bytes // MIB,
            droped=loop.leaving,
            last_pull_timestamp=loop.last_pull_ms,
            last_consume_timestamp=loop.last_consume_ms,
        )
