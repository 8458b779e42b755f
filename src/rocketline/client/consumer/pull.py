"""The pull consumer: you choose the queues, ask for messages, and commit when you like."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Self

from rocketline.client.consumer.assigned_reading import AssignedReading
from rocketline.client.consumer.pull_loop import PullSettings
from rocketline.client.consumer.queue_buffer import BufferLimits
from rocketline.client.consumer.start_offset import ConsumeFrom, StartFrom
from rocketline.client.identity import check_group, client_id, parse_name_servers
from rocketline.client.remote_broker import RemoteBroker
from rocketline.client.session import ClientSession, open_session
from rocketline.client.timing import ClientTiming
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import ClientError, ConsumerClosed, GroupNotExist, InvalidMessage, QueryNotFound
from rocketline.message import ConsumerOffset, MessageQueue, MessageView, QueueOffset
from rocketline.protocol.namespaces import Namespace


class PullConsumer:
    """Reads queues of your choice; an async context manager.

        async with PullConsumer("127.0.0.1:9876", group="audit") as consumer:
            consumer.assign(await consumer.queues("orders"))
            messages = await consumer.poll(max_messages=100, timeout=5.0)
            await consumer.commit()

    Queues are read ahead in the background, all at the same time. Nothing is committed but by `commit`: until then, a
    consumer that starts anew gets the same messages again.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        group: str,
        from_where: ConsumeFrom | datetime = ConsumeFrom.LAST,
        pull_batch: int = 32,
        pull_timeout: float = 30.0,
        suspend: float = 20.0,
        max_cached_messages: int = 1000,
        max_cached_mib: int = 100,
        max_span: int = 2000,
        namespace: str | None = None,
        unit_name: str | None = None,
        instance_name: str | None = None,
        client_ip: str | None = None,
        timing: ClientTiming | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`from_where` is where queues begin in which the group has committed nothing. The other options are those of
        PushConsumer; `max_cached_messages` and its neighbours bound how far a queue is read ahead."""
        self._namespace = Namespace(namespace)
        self._wire_group = check_group(self._namespace.wrap(group))
        self.group = self._namespace.unwrap(group)
        self.client_id = client_id(instance_name, ip=client_ip, unit=unit_name, stream=True)
        self._name_servers = parse_name_servers(name_servers)
        self._start_from = StartFrom(from_where)
        limits = BufferLimits(max_cached_messages, max_cached_mib, max_span)
        self._settings = PullSettings(pull_batch, suspend, pull_timeout, limits=limits)
        self._timing = timing
        self._clock = clock
        self._session: ClientSession | None = None
        self._reading: AssignedReading | None = None

    async def __aenter__(self) -> Self:
        if self._session is not None:
            raise ConsumerClosed(f"consumer {self.group!r} is already open")
        session = open_session(self.client_id, self._name_servers, self._timing, self._clock)
        reading = AssignedReading(session, self._wire_group, self._settings, self._start_from)
        try:
            session.add_consumer(reading)
        except BaseException:
            await session.release()
            raise
        self._session, self._reading = session, reading
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading and say goodbye; nothing is committed."""
        session, self._session = self._session, None
        reading, self._reading = self._reading, None
        if session is None or reading is None:
            return
        try:
            await reading.stop()
            await session.remove_consumer(reading)
        finally:
            await session.release()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read."""
        route = await self._open[0].routes.refresh(self._namespace.wrap(topic))
        return tuple(map(self._namespace.unwrap_queue, route.readable))

    def assign(self, queues: Iterable[MessageQueue], expression: str = "*") -> None:
        """Read exactly these queues, from where the group is in each; `expression` selects tags, as in `subscribe`."""
        self._open[1].assign([self._namespace.wrap_queue(queue) for queue in queues], expression)

    @property
    def assigned(self) -> set[MessageQueue]:
        return set(map(self._namespace.unwrap_queue, self._open[1].assigned))

    async def poll(self, max_messages: int = 32, timeout: float = 5.0) -> list[MessageView]:
        """Messages of the assigned queues, as soon as there are any; none when the time is over."""
        if max_messages < 1:
            raise InvalidMessage(f"max_messages {max_messages}: at least 1 is needed")
        reading = self._open[1]
        if not reading.assigned:
            raise ClientError(f"consumer {self.group!r} has no queues: call assign() first")
        taken = reading.take(max_messages)
        if not taken and timeout > 0:
            try:
                async with asyncio.timeout(timeout):
                    while not taken:
                        await reading.arrived.wait()
                        taken = reading.take(max_messages)
            except TimeoutError:
                pass
        if self._namespace:
            for message in taken:
                message.topic = self._namespace.unwrap(message.topic)
        return taken

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on with a queue at another offset, which must be one the broker has, or its end."""
        reading = self._open[1]
        queue = self._namespace.wrap_queue(queue)
        if queue not in reading.assigned:
            raise ClientError(f"{queue} is not assigned to consumer {self.group!r}")
        first, end = await self.begin_offset(queue), await self.end_offset(queue)
        if not first <= offset <= end:
            raise InvalidMessage(f"offset {offset} is not in {queue}, which has {first} to {end}")
        await reading.seek(queue, offset)

    def position(self, queue: MessageQueue) -> QueueOffset | None:
        """The offset of the next message `poll` returns from a queue; None while the start is still being asked for."""
        return self._open[1].position(self._namespace.wrap_queue(queue))

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Store the positions of all assigned queues, or of some, as the group's progress."""
        reading = self._open[1]
        chosen = reading.assigned if queues is None else map(self._namespace.wrap_queue, queues)
        for queue in sorted(chosen):
            position = reading.position(queue)
            if position is not None:
                await self.commit_offset(queue, position)

    async def commit_offset(self, queue: MessageQueue, offset: int) -> None:
        """Store any offset as the group's progress in a queue."""
        session = self._open[0]
        queue = self._namespace.wrap_queue(queue)
        broker = await session.broker_of(queue)
        try:
            await broker.commit_offset(self._wire_group, queue, ConsumerOffset(offset), oneway=False)
        except GroupNotExist:
            # A broker learns of a group by its heartbeat, which may still be on its way.
            await session.heartbeat(broker.address)
            await broker.commit_offset(self._wire_group, queue, ConsumerOffset(offset), oneway=False)

    async def committed(self, queue: MessageQueue) -> ConsumerOffset | None:
        """The group's progress in a queue as the broker has it; None when there is none."""
        queue = self._namespace.wrap_queue(queue)
        try:
            return await (await self._broker(queue)).consumer_offset(self._wire_group, queue)
        except QueryNotFound:
            return None

    async def begin_offset(self, queue: MessageQueue) -> QueueOffset:
        """The offset of the oldest message kept."""
        queue = self._namespace.wrap_queue(queue)
        return await (await self._broker(queue)).min_offset(queue)

    async def end_offset(self, queue: MessageQueue) -> QueueOffset:
        """The offset the next message will get."""
        queue = self._namespace.wrap_queue(queue)
        return await (await self._broker(queue)).max_offset(queue)

    async def offset_at(self, queue: MessageQueue, when: datetime) -> QueueOffset:
        """The offset of the first message stored at or after a time; the end when there is none."""
        queue = self._namespace.wrap_queue(queue)
        return await (await self._broker(queue)).offset_at(queue, round(when.timestamp() * 1000))

    @property
    def problems(self) -> list[str]:
        """Queues that stand still at a message nobody can read."""
        return self._open[1].problems

    async def _broker(self, queue: MessageQueue) -> RemoteBroker:
        return await self._open[0].broker_of(queue)

    @property
    def _open(self) -> tuple[ClientSession, AssignedReading]:
        if self._session is None or self._reading is None:
            raise ConsumerClosed(f"consumer {self.group!r} is not open: use it inside 'async with'")
        return self._session, self._reading
