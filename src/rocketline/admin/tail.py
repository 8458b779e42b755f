"""Messages of a topic as they arrive, without a group: nothing is committed, and nobody else's reading changes.

Each queue has a task with a held pull. A broker that does not answer is tried again until it does, from the same offset, so
after a restart no message comes twice and none is left out. What the viewer does not take in time is dropped, the oldest
first, and counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from rocketline.admin.cluster import Admin
from rocketline.admin.cursors import Place, decode_cursor, encode_cursor
from rocketline.admin.messages import pull_header
from rocketline.admin.partial import Missing
from rocketline.admin.remote import AdminBroker
from rocketline.admin.search import ANYTHING, Wanted, cut_body, queue_ranges
from rocketline.client.remote_broker import PullStatus
from rocketline.errors import ClientError, RocketlineError
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.records import decode_messages

HOLD_MS = 10_000
FIRST_PAUSE_S, MAX_PAUSE_S = 0.2, 3.0
LOOK_EVERY_S = 10.0
"""For queues that were added."""
MAX_QUEUES = 512
PULLED = 128


@dataclass(frozen=True)
class TailBatch:
    """What arrived since the batch before, in order of arrival here."""

    messages: list[MessageView]
    position: str
    """Where a new tail goes on after this batch."""
    dropped: int
    """Messages that were left out because the viewer was too slow."""
    missing: tuple[Missing, ...]
    """Brokers that do not answer now and are tried again."""
    cut: dict[str, int] = field(default_factory=dict)
    """By offset id, the size of the bodies that were cut."""


@dataclass(frozen=True)
class Room:
    """How much waits for a viewer at most. What is more is dropped, the oldest first."""

    messages: int = 1000
    bytes: int = 16 << 20
    """Of bodies and properties."""
    body_bytes: int | None = None
    """Longer bodies are cut as they arrive; conditions see them whole."""


USUAL_ROOM = Room()


class Tail:
    """Follows a topic; an async context manager that owns its tasks.

    Without `position` it begins with the next message. Of `wanted`, the conditions and the queue count, not the times.
    """

    def __init__(
        self, admin: Admin, topic: str, wanted: Wanted = ANYTHING, position: str | None = None, room: Room = USUAL_ROOM
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._wanted = wanted
        self._accepts = wanted.test()
        self._begin = None if position is None else decode_cursor(position)
        self._room = room
        self._waiting: deque[MessageView] = deque()
        self._waiting_bytes = 0
        self._cut: dict[str, int] = {}
        self._offsets: dict[MessageQueue, int] = {}
        """The next offset of each queue, after what waits."""
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._failing: dict[str, Missing] = {}
        self._dropped = 0
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        """RouteNotFound when there is no such topic."""
        queues = [pair for pair in await self._admin.queues_of(self._topic) if self._wanted.has(pair[1])]
        if len(queues) > MAX_QUEUES:
            raise ClientError(
                f"{self._topic!r} has {len(queues)} queues, at most {MAX_QUEUES} can be followed: choose some"
            )
        known = {(place.broker_name, place.queue_id): place.low for place in self._begin or ()}
        self._offsets = {
            queue: known[queue.broker_name, queue.queue_id]
            for _, queue in queues
            if (queue.broker_name, queue.queue_id) in known
        }
        await self._begin_at_end(queues)
        self._follow(queues)
        self._looking = asyncio.create_task(self._look_for_queues(), name=f"queues of {self._topic}")
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._tasks.values(), *([self._looking] if self._looking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def next_batch(self, most: int = 200, every_s: float = 0.1, idle_s: float = 15.0) -> TailBatch:
        """What arrived, at most every `every_s` seconds. An empty batch comes after `idle_s` seconds in which nothing did,
        and when a broker falls silent or answers again."""
        try:
            async with asyncio.timeout(idle_s):
                await self._news.wait()
        except TimeoutError:
            return self._batch([])
        await asyncio.sleep(every_s)
        taken = [self._next_waiting() for _ in range(min(most, len(self._waiting)))]
        if not self._waiting:
            self._news.clear()
        return self._batch(taken)

    def _batch(self, messages: list[MessageView]) -> TailBatch:
        dropped, self._dropped = self._dropped, 0
        cut = {message.offset_id: self._cut.pop(message.offset_id, 0) for message in messages if self._cut}
        cut = {offset_id: size for offset_id, size in cut.items() if size}
        return TailBatch(messages, self.position, dropped, tuple(self._failing.values()), cut)

    @property
    def position(self) -> str:
        """Where a new tail goes on: before what waits, and after what was taken."""
        offsets = dict(self._offsets)
        for message in reversed(self._waiting):
            offsets[message.queue] = message.queue_offset
        return encode_cursor(Place(queue.broker_name, queue.queue_id, at, at) for queue, at in sorted(offsets.items()))

    async def _begin_at_end(self, queues: Iterable[tuple[AdminBroker, MessageQueue]]) -> None:
        """Where a tail without a position begins. A queue whose broker does not answer begins where it ends later."""
        new = {queue: broker for broker, queue in queues if queue not in self._offsets}
        brokers = {broker.name: broker for broker in new.values()}
        ranges = await queue_ranges(self._admin, self._topic, brokers.values())
        self._offsets |= {item.queue: item.high for item in ranges.value if item.queue in new}

    def _follow(self, queues: Iterable[tuple[AdminBroker, MessageQueue]]) -> None:
        for broker, queue in queues:
            if queue not in self._tasks:
                self._tasks[queue] = asyncio.create_task(self._read(broker, queue), name=f"tail of {queue}")

    async def _look_for_queues(self) -> None:
        """A topic may get more queues, and a broker another address."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self._admin.forget_route(self._topic)
            try:
                queues = [pair for pair in await self._admin.queues_of(self._topic) if self._wanted.has(pair[1])]
            except RocketlineError:
                continue
            new = [pair for pair in queues if pair[1] not in self._tasks]
            if new and len(self._tasks) + len(new) <= MAX_QUEUES:
                self._offsets |= {queue: 0 for _, queue in new}  # all they have is new
                self._follow(new)

    async def _read(self, broker: AdminBroker, queue: MessageQueue) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                if queue not in self._offsets:
                    self._offsets[queue] = await broker.max_offset(queue)
                await self._pull(broker, queue)
            except RocketlineError as error:
                self._fails(Missing.of(broker.name, broker.address, error))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, MAX_PAUSE_S)
                broker = await self._broker_now(broker)
            else:
                pause_s = FIRST_PAUSE_S
                self._answers(broker)

    async def _pull(self, broker: AdminBroker, queue: MessageQueue) -> None:
        offset = self._offsets[queue]
        header = pull_header(queue, offset, PULLED, hold_ms=HOLD_MS)
        answer = await broker.pull(header, broker.timeout_s + HOLD_MS / 1000)
        if answer.status is PullStatus.FOUND:
            for message in decode_messages(answer.body):
                if message.queue_offset >= offset:
                    message.broker_name = queue.broker_name
                    self._take(message)
            self._offsets[queue] = max(offset, answer.next_offset)
        elif answer.next_offset != offset:
            self._offsets[queue] = answer.next_offset

    def _take(self, message: MessageView) -> None:
        if self._accepts is not None and not self._accepts(message):
            return
        cut_body(message, self._room.body_bytes, self._cut)
        self._waiting.append(message)
        self._waiting_bytes += _held_bytes(message)
        while len(self._waiting) > 1 and (
            len(self._waiting) > self._room.messages or self._waiting_bytes > self._room.bytes
        ):
            self._cut.pop(self._next_waiting().offset_id, None)
            self._dropped += 1
        self._news.set()

    def _next_waiting(self) -> MessageView:
        message = self._waiting.popleft()
        self._waiting_bytes -= _held_bytes(message)
        return message

    async def _broker_now(self, broker: AdminBroker) -> AdminBroker:
        """The broker of that name: after a restart it may have another address."""
        self._admin.forget_route(self._topic)
        try:
            return next(
                (item for item in await self._admin.brokers_of(self._topic) if item.name == broker.name), broker
            )
        except RocketlineError:
            return broker

    def _fails(self, missing: Missing) -> None:
        if missing.broker not in self._failing:
            self._news.set()
        self._failing[missing.broker] = missing

    def _answers(self, broker: AdminBroker) -> None:
        if self._failing.pop(broker.name, None) is not None:
            self._news.set()


def _held_bytes(message: MessageView) -> int:
    return len(message.body) + sum(len(name) + len(value) for name, value in message.properties.items())
