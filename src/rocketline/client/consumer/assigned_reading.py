"""The queues a pull consumer was told to read, each read ahead by a pull loop of its own.

What a loop has read waits in its buffer until it is polled, so the position of a queue is the first offset waiting, or
the loop's next when none is. One queue that fails or has nothing never keeps another from being read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from rocketline.client.consumer.offsets import BrokerOffsets
from rocketline.client.consumer.pull_loop import PullLoop, PullSettings
from rocketline.client.consumer.queue_buffer import MIB
from rocketline.client.consumer.start_offset import StartFrom
from rocketline.client.consumer.subscription import Subscription
from rocketline.client.consumer_info import ConsumeDirectlyResult, ConsumerRunningInfo, ProcessQueueInfo
from rocketline.client.session import ClientSession
from rocketline.client.tasks import OwnedTasks, cancel_and_wait
from rocketline.errors import RequestRejected, RocketlineError
from rocketline.message import ConsumerOffset, MessageQueue, MessageView, QueueOffset
from rocketline.protocol.bodies import ConsumerData, queue_key
from rocketline.protocol.codes import ResponseCode

log = logging.getLogger(__name__)


class AssignedReading:
    """Pull loops of one pull consumer, and what session and brokers ask of it."""

    def __init__(self, session: ClientSession, group: str, settings: PullSettings, start_from: StartFrom) -> None:
        self._session = session
        self._group = group
        self._settings = settings
        self._start_from = start_from
        self._offsets = BrokerOffsets(session, group)
        self._subscriptions: dict[str, Subscription] = {}
        self._loops: dict[MessageQueue, PullLoop] = {}
        self._readers: dict[MessageQueue, asyncio.Task[None]] = {}
        self._tasks = OwnedTasks()
        self._turn = 0
        self.arrived = asyncio.Event()

    @property
    def assigned(self) -> set[MessageQueue]:
        return set(self._readers)

    def assign(self, queues: Sequence[MessageQueue], expression: str) -> None:
        """Read exactly these queues; those that were read before with the same expression go on undisturbed."""
        wanted = set(queues)
        topics = {queue.topic for queue in wanted}
        changed = set()
        for topic in topics:
            new, known = Subscription(topic, expression, self._session.clock.now_ms()), self._subscriptions.get(topic)
            if known is None or known.expression != new.expression:
                self._subscriptions[topic] = new
                changed.add(topic)
        for topic in set(self._subscriptions) - topics:
            del self._subscriptions[topic]
        self._drop([queue for queue in self._readers if queue not in wanted or queue.topic in changed])
        for queue in sorted(wanted - set(self._readers)):
            self._readers[queue] = self._tasks.start(self._read(queue, None), f"read {queue}")
        self._tasks.start(self._session.heartbeat(), "heartbeat")

    def _drop(self, queues: Sequence[MessageQueue]) -> None:
        for queue in queues:
            self._readers.pop(queue).cancel()
            if (loop := self._loops.pop(queue, None)) is not None:
                loop.drop()

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read a queue from another offset on."""
        loop = self._loops.pop(queue, None)
        if loop is not None:
            loop.drop()
        await cancel_and_wait(self._readers[queue])
        self._readers[queue] = self._tasks.start(self._read(queue, offset), f"read {queue}")
        await asyncio.sleep(0)  # let it begin, so that its position is the one asked for

    async def _read(self, queue: MessageQueue, offset: int | None) -> None:
        level = logging.WARNING
        while offset is None:
            try:
                offset = await self._start_from.offset(self._session, self._offsets, queue, store=False)
            except RocketlineError as error:
                log.log(level, "group %s cannot start reading %s yet: %s", self._group, queue, error)
                level = logging.DEBUG
                await asyncio.sleep(self._session.timing.pull_retry_s)
        subscription = self._subscriptions[queue.topic]
        loop = self._loops[queue] = PullLoop(
            self._session, self._group, queue, subscription, self._settings, self, offset, subscribes=True
        )
        await loop.run()

    def take(self, count: int) -> list[MessageView]:
        """Up to `count` messages that wait here, queues in turn so that a full one does not hide the others."""
        self.arrived.clear()
        taken: list[MessageView] = []
        loops = list(self._loops.values())
        self._turn += 1
        for step in range(len(loops)):
            loop = loops[(self._turn + step) % len(loops)]
            messages = loop.buffer.oldest(count - len(taken))
            if messages:
                loop.finish(messages)
                taken += messages
            if len(taken) == count:
                break
        return taken

    def position(self, queue: MessageQueue) -> QueueOffset | None:
        """The offset of the next message that `take` returns from a queue; None when it is not known yet."""
        loop = self._loops.get(queue)
        if loop is None:
            return None
        first = loop.buffer.min_offset
        return QueueOffset(first) if first is not None else loop.next_offset

    @property
    def problems(self) -> list[str]:
        return [loop.stuck_at for loop in self._loops.values() if loop.stuck_at is not None]

    async def stop(self) -> None:
        await self._tasks.cancel()

    def pulled(self, loop: PullLoop, messages: list[MessageView]) -> None:
        self.arrived.set()

    def advanced(self, loop: PullLoop, offset: ConsumerOffset) -> None:
        """Positions are read from the loops."""

    def commit_offset(self, queue: MessageQueue) -> ConsumerOffset | None:
        """Only the caller commits."""
        return None

    async def offset_moved(self, loop: PullLoop, offset: QueueOffset) -> None:
        loop.jump(offset)

    @property
    def group(self) -> str:
        return self._group

    @property
    def topics(self) -> set[str]:
        return set(self._subscriptions)

    def consumer_data(self) -> ConsumerData:
        subscriptions = [subscription.data for subscription in self._subscriptions.values()]
        return ConsumerData(self._group, "CONSUME_ACTIVELY", "CLUSTERING", self._start_from.where.value, subscriptions)

    def route_changed(self, topic: str) -> None:
        """Which queues are read is the caller's choice."""

    def members_changed(self) -> None:
        """Nobody shares queues here."""

    async def persist_offsets(self) -> None:
        """Only the caller commits."""

    async def reset_offsets(self, offsets: Mapping[MessageQueue, ConsumerOffset]) -> None:
        for queue, offset in offsets.items():
            if queue in self._readers:
                await self.seek(queue, offset)

    def positions(self, topic: str) -> Mapping[MessageQueue, ConsumerOffset]:
        queues = [queue for queue in self._loops if queue.topic == topic]
        return {queue: ConsumerOffset(self.position(queue) or 0) for queue in queues}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            {
                "PROP_NAMESERVER_ADDR": ";".join(self._session.name_server.addresses),
                "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
                "PROP_CLIENT_VERSION": "V5_4_0",
                "consumerGroup": self._group,
            },
            [subscription.data for subscription in self._subscriptions.values()],
            {queue_key(queue): self._queue_info(loop) for queue, loop in self._loops.items()},
        )

    def _queue_info(self, loop: PullLoop) -> ProcessQueueInfo:
        buffer = loop.buffer
        return ProcessQueueInfo(
            self.position(loop.queue) or 0,
            buffer.min_offset or 0,
            buffer.max_offset or 0,
            len(buffer),
            buffer.body_bytes // MIB,
            last_pull_timestamp=loop.last_pull_ms,
            last_consume_timestamp=loop.last_consume_ms,
        )

    async def consume_directly(self, message: MessageView) -> ConsumeDirectlyResult:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"group {self._group!r} polls here: it has no handler to run")
