"""The pull consumer: queues of a group's share or of your choice, read when you ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Self

from rocketline.client.base import GroupClient
from rocketline.client.consumer.group.assignment import Strategy, find_strategy
from rocketline.client.consumer.group.consume_observer import ConsumeObserver
from rocketline.client.consumer.group.offsets import OffsetStore
from rocketline.client.consumer.group.start_offset import ConsumeFrom, StartFrom
from rocketline.client.consumer.group.subscription import Sql
from rocketline.client.consumer.pull.listeners import QueuesListener, TopicListener, tell
from rocketline.client.consumer.pull.pull_member import PullMember, PullMemberOptions
from rocketline.client.consumer.push.pull_loop import PullSettings
from rocketline.client.consumer.push.push_member import MessageModel
from rocketline.client.identity import DEFAULT_INSTANCE
from rocketline.client.options import ClientOptions
from rocketline.client.remote_broker import RemoteBroker
from rocketline.client.session import ClientSession, opened_before_fork
from rocketline.errors import ClientError, ConsumerClosed, InvalidMessage
from rocketline.message import ConsumerOffset, MessageQueue, MessageView, QueueOffset
from rocketline.protocol.headers import ConsumerSendMsgBackHeader


class SeekTo(Enum):
    """The ends of a queue."""

    BEGIN = "BEGIN"
    """The oldest message kept."""
    END = "END"
    """The next message to come."""


class PullConsumer(GroupClient):
    """Reads as a member of a group, or queues of your choice; an async context manager.

        async with PullConsumer("127.0.0.1:9876", group="audit") as consumer:
            await consumer.subscribe("orders", "created || paid")
            messages = await consumer.poll(max_messages=100, timeout=5.0)

    `subscribe` shares the queues of topics with the other members of the group; `assign` reads exactly the queues it is
    given, whoever else reads them. `async for message in consumer` works too.

    Queues are read ahead in the background, all at the same time. With `auto_commit`, what a poll returned is done when
    the next one is called, or when the consumer is closed; it is committed every five seconds and whenever a queue goes
    to another member. An exception that leaves the `async with` block leaves the last poll's messages undone. Without
    `auto_commit` nothing is committed but by `commit`.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str,
        model: MessageModel = MessageModel.CLUSTERING,
        from_where: ConsumeFrom | datetime = ConsumeFrom.LAST,
        auto_commit: bool = True,
        strategy: Strategy | str = "AVG",
        on_added: QueuesListener | None = None,
        on_dropped: QueuesListener | None = None,
        pull: PullSettings = PullSettings(suspend_s=20.0),
        offsets: OffsetStore | Path | None = None,
        options: ClientOptions = ClientOptions(),
    ) -> None:
        """A subscriber's `on_added` is called with queues it got, before their first message can be polled, and may seek
        in them; `on_dropped` with queues that it loses, when nothing more can be polled of them, and may commit. The other
        arguments are those of PushConsumer."""
        broadcasting = model is MessageModel.BROADCASTING
        instance = DEFAULT_INSTANCE if broadcasting else None
        super().__init__(name_servers, group, options, default_instance=instance, stream=True)
        self._options = PullMemberOptions(
            group=self._wire_group,
            model=model,
            start_from=StartFrom(from_where),
            auto_commit=auto_commit,
            pull=pull,
            strategy=find_strategy(strategy),
            on_added=self._unwrapping(on_added),
            on_dropped=self._unwrapping(on_dropped),
            offsets=offsets,
        )
        self._member: PullMember | None = None

    def _unwrapping(self, listener: QueuesListener | None) -> QueuesListener | None:
        if listener is None or not self._namespace:
            return listener
        return lambda queues: tell(listener, list(map(self._namespace.unwrap_queue, queues)))

    async def __aenter__(self) -> Self:
        if self._session is not None:
            raise ConsumerClosed(f"consumer {self.group!r} is already open")
        session = self._new_session()
        try:
            observer = ConsumeObserver(self.group, session.clock, namespace=self._namespace)
            member = PullMember(session, self._options, observer)
            await member.open()
        except BaseException:
            await session.release()
            raise
        self._session, self._member = session, member
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._close(clean=kind is None)

    async def close(self) -> None:
        """Stop reading, commit what was polled (with `auto_commit`) and unregister."""
        await self._close(clean=True)

    async def _close(self, *, clean: bool) -> None:
        session, member = self._session, self._member
        if session is None or member is None or member.closing or session.is_inherited:
            return
        try:
            await member.close(clean=clean)
        finally:
            self._session = self._member = None
            await session.release()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read."""
        route = await self._opened.routes.refresh(self._namespace.wrap(topic))
        return tuple(map(self._namespace.unwrap_queue, route.readable))

    async def subscribe(self, topic: str, expression: str | Sql = "*") -> None:
        """Read this member's share of a topic; `expression` selects tags, `*` or some joined by `||`, or
        with `Sql` properties."""
        await self._open.subscribe(self._namespace.wrap(topic), expression)

    def unsubscribe(self, topic: str) -> None:
        """Leave a topic; its queues go to the other members."""
        self._open.unsubscribe(self._namespace.wrap(topic))

    def assign(self, queues: Iterable[MessageQueue], expression: str | Sql = "*") -> None:
        """Read exactly these queues, from where the group is in each; `expression` selects tags, as in `subscribe`, and
        when it changes counts from the position of each queue on."""
        self._open.assign(frozenset(map(self._namespace.wrap_queue, queues)), expression)

    @property
    def assigned(self) -> set[MessageQueue]:
        """The queues this consumer reads at the moment."""
        return set(map(self._namespace.unwrap_queue, self._open.assigned))

    async def on_queues_changed(self, topic: str, listener: TopicListener) -> None:
        """Have `listener` called with a topic and its queues when these become other ones; looked for every 30 s."""
        unwrap = self._namespace.unwrap_queue

        async def unwrapped(_: str, queues: list[MessageQueue]) -> None:
            await tell(listener, topic, list(map(unwrap, queues)))

        await self._open.route_listeners.add(self._namespace.wrap(topic), unwrapped)

    async def poll(self, max_messages: int = 32, timeout: float = 5.0) -> list[MessageView]:
        """Messages of the queues read, as soon as there are any; none when the time is over.

        BrokerError when brokers refuse every queue of a topic for a reason that does not pass by itself: no rights, an
        SQL92 expression with a mistake, a topic they do not have. RouteNotFound when the time is over and no topic of the
        assigned queues exists. Both may be caught, and `poll` called again: reading is tried again every second.
        """
        if max_messages < 1:
            raise InvalidMessage(f"max_messages {max_messages}: at least 1 is needed")
        member = self._open
        if member.closing:
            raise ConsumerClosed(f"consumer {self.group!r} is being closed")
        if not member.has_queues_to_come:
            raise ClientError(f"consumer {self.group!r} reads nothing: call subscribe() or assign() first")
        member.settle()
        queues = member.queues
        if taken := queues.take(max_messages):
            return taken
        try:
            async with asyncio.timeout(max(timeout, 0.0)):
                while not taken and not member.closing:
                    if (refusal := queues.take_refusal()) is not None:
                        raise refusal
                    await queues.arrived.wait()
                    taken = queues.take(max_messages)
        except TimeoutError:
            if (absence := queues.absence()) is not None:
                raise absence from absence.__cause__
        return taken

    async def __aiter__(self) -> AsyncIterator[MessageView]:
        """Message after message until the consumer is closed; one is done when the next is asked for."""
        member = self._open
        while not member.closing:
            # One at a time: what a loop that is left has not seen must not count as polled.
            for message in await self.poll(1):
                yield message

    async def seek(self, queue: MessageQueue, to: int | SeekTo | datetime) -> None:
        """Go on with a queue elsewhere: at an offset the broker has, an end, or the first message stored at a time."""
        member, queue = self._open, self._namespace.wrap_queue(queue)
        member.require([queue])
        if isinstance(to, datetime):
            offset: int = await self.offset_at(queue, to)
        else:
            first, end = await self.begin_offset(queue), await self.end_offset(queue)
            offset = to if isinstance(to, int) else first if to is SeekTo.BEGIN else end
            if not first <= offset <= end:
                raise InvalidMessage(f"offset {offset} is not in {queue}, which has {first} to {end}")
        member.queues.seek(queue, offset)

    def position(self, queue: MessageQueue) -> QueueOffset | None:
        """The offset of the next message `poll` returns from a queue; None while the start is still being asked for."""
        return self._open.queues.position(self._namespace.wrap_queue(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Poll nothing of some queues, and read them no further, until `resume` or until another member gets them."""
        chosen = list(map(self._namespace.wrap_queue, queues))
        self._open.require(chosen)
        self._open.queues.pause(chosen)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        self._open.queues.resume(map(self._namespace.wrap_queue, queues))

    @property
    def paused(self) -> set[MessageQueue]:
        return set(map(self._namespace.unwrap_queue, self._open.queues.paused))

    async def commit(self, queues: Iterable[MessageQueue] | Mapping[MessageQueue, int] | None = None) -> None:
        """Store the positions of all queues read, of some, or other offsets, as the group's progress."""
        member = self._open
        wrap = self._namespace.wrap_queue
        if isinstance(queues, Mapping):
            await member.commit({wrap(queue): offset for queue, offset in queues.items()})
            return
        chosen = member.assigned if queues is None else set(map(wrap, queues))
        member.require(chosen)
        known = {queue: member.queues.position(queue) for queue in chosen}
        await member.commit({queue: position for queue, position in known.items() if position is not None})

    async def commit_offset(self, queue: MessageQueue, offset: int) -> None:
        """Store any offset as the group's progress in a queue."""
        await self._open.commit({self._namespace.wrap_queue(queue): offset})

    async def committed(self, queue: MessageQueue) -> ConsumerOffset | None:
        """The group's progress as it was stored; None when there is none."""
        return await self._open.committed(self._namespace.wrap_queue(queue))

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

    async def send_back(self, message: MessageView, *, delay_level: int = 0) -> None:
        """Have a message delivered to the group again later, on its retry topic: subscribe to `%RETRY%group` to get it.

        Level 0 is 10 s the first time and longer each time; below 0 the message goes to the dead-letter topic at once, as
        it does after the group's retryMaxTimes.
        """
        queue = self._namespace.wrap_queue(message.queue)
        header = ConsumerSendMsgBackHeader(
            message.log_offset,
            self._wire_group,
            delay_level,
            message.message_id,
            queue.topic,
            broker_name=queue.broker_name,
        )
        await (await self._broker(queue)).send_back(header, self._opened.timing.send_back_s)

    @property
    def problems(self) -> list[str]:
        """Queues that stand still at a message nobody can read."""
        return [loop.stuck_at for loop in self._open.queues.loops() if loop.stuck_at is not None]

    async def _broker(self, queue: MessageQueue) -> RemoteBroker:
        return await self._opened.broker_of(queue)

    @property
    def _open(self) -> PullMember:
        if self._session is None or self._member is None or self._session.is_inherited:
            raise self._not_open()
        return self._member

    @property
    def _opened(self) -> ClientSession:
        if self._session is None or self._session.is_inherited:
            raise self._not_open()
        return self._session

    def _not_open(self) -> ConsumerClosed:
        if self._session is not None:
            return ConsumerClosed(opened_before_fork(f"consumer {self.group!r}"))
        return ConsumerClosed(f"consumer {self.group!r} is not open: use it inside 'async with'")
