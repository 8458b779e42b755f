"""Looking for messages, the newest first, over all queues of a topic.

Queues are read backwards in small ranges and merged by store time, so at any moment everything newer than the last message
looked at has been looked at. A search ends when it has found enough or has looked at as many messages as it may; its cursor
goes on from there. Nothing is committed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from rocketline.admin.cluster import Admin
from rocketline.admin.cursors import BadCursor, Place, decode_cursor, encode_cursor
from rocketline.admin.messages import read_queue
from rocketline.admin.partial import Missing, Partial
from rocketline.admin.remote import AdminBroker
from rocketline.admin.where import Accepts, compile_search
from rocketline.errors import ClientError, RocketlineError
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.bodies import parse_queue_key

FIRST_RANGE = 4
MAX_RANGE = 256
RANGE_BYTES = 1 << 20
"""A range grows until its records have about this many bytes."""


@dataclass(frozen=True)
class Wanted:
    """Which messages to look for; times are store times, both inclusive."""

    begin_ms: int | None = None
    end_ms: int | None = None
    tag: str = "*"
    where: str = ""
    """An SQL92 condition, see `where`."""
    text: str = ""
    broker_name: str | None = None
    queue_id: int | None = None
    """Only one queue, or the queues with this number on all brokers."""

    def has(self, queue: MessageQueue) -> bool:
        return self.broker_name in (None, queue.broker_name) and self.queue_id in (None, queue.queue_id)

    def test(self) -> Accepts | None:
        """InvalidExpression when a condition is not valid."""
        return compile_search(self.tag, self.where, self.text)


@dataclass(frozen=True)
class Budget:
    """How much one search may do."""

    most: int = 50
    """Messages found."""
    scan: int = 10_000
    """Messages looked at."""
    body_bytes: int | None = None
    """Longer bodies are cut in the result; conditions see them whole."""


@dataclass(frozen=True)
class Page:
    """What a search found: the newest message first."""

    messages: list[MessageView]
    scanned: int
    next: str | None
    """Where to go on; None when nothing older is left."""
    reached_ms: int | None
    """Store time of the last message looked at."""
    missing: tuple[Missing, ...] = ()
    cut: dict[str, int] = field(default_factory=dict)
    """By offset id, the size of the bodies that were cut."""

    @property
    def complete(self) -> bool:
        return self.next is None and not self.missing


ANYTHING = Wanted()
USUAL = Budget()


@dataclass(frozen=True)
class QueueRange:
    """A part of a queue, and its broker."""

    broker: AdminBroker
    queue: MessageQueue
    low: int
    high: int


async def newest(
    admin: Admin, topic: str, wanted: Wanted = ANYTHING, budget: Budget = USUAL, cursor: str | None = None
) -> Page:
    """Messages of a topic, the newest first. RouteNotFound, InvalidExpression or BadCursor say what cannot be."""
    test = wanted.test()
    if cursor is None:
        ranges = await _wanted_ranges(admin, topic, wanted)
    else:
        ranges = Partial(await _ranges_at(admin, topic, decode_cursor(cursor)))
    return await newest_in(ranges, _within(wanted, test), budget)


async def newest_in(ranges: Partial[list[QueueRange]], accepts: Accepts | None, budget: Budget) -> Page:
    """As `newest`, in parts of queues."""
    search = _Search([_Backwards(item, accepts, budget.body_bytes) for item in ranges.value], budget)
    await search.run()
    missing = {item.where: item for item in (*ranges.missing, *search.missing())}
    cut = {offset_id: size for queue in search.queues for offset_id, size in queue.cut.items()}
    return Page(search.found, search.scanned, search.cursor(), search.reached_ms, tuple(missing.values()), cut)


async def queue_ranges(
    admin: Admin, topic: str, brokers: Iterable[AdminBroker], queue_ids: range | None = None
) -> Partial[list[QueueRange]]:
    """All queues of a topic on brokers, whole; one request to each."""
    stats = await admin.ask_each(brokers, lambda broker: broker.topic_stats(topic))
    found = [
        QueueRange(broker, queue, max(0, item.min_offset), item.max_offset)
        for broker, table in stats.value
        for queue, item in ((parse_queue_key(key), item) for key, item in table.offset_table.items())
        if queue_ids is None or queue.queue_id in queue_ids
    ]
    return Partial(sorted(found, key=lambda item: item.queue), stats.missing, stats.answered)


async def _wanted_ranges(admin: Admin, topic: str, wanted: Wanted) -> Partial[list[QueueRange]]:
    readable = {queue for _, queue in await admin.queues_of(topic) if wanted.has(queue)}
    ranges = await queue_ranges(admin, topic, await admin.brokers_of(topic))
    chosen = [item for item in ranges.value if item.queue in readable]
    if wanted.begin_ms is None and (wanted.end_ms is None or wanted.end_ms >= time.time() * 1000):
        return Partial(chosen, ranges.missing)
    answers = await admin.gather_or_errors(_in_time(item, wanted) for item in chosen)
    limited = [answer for answer in answers if isinstance(answer, QueueRange)]
    failed = [
        Missing.of(item.broker.name, item.broker.address, answer)
        for item, answer in zip(chosen, answers)
        if isinstance(answer, RocketlineError)
    ]
    return Partial(limited, (*ranges.missing, *failed))


async def _in_time(item: QueueRange, wanted: Wanted) -> QueueRange:
    """The part of a queue that was stored in a time; one more at each end, as brokers search in their own ways."""
    low, high = item.low, item.high
    if wanted.begin_ms is not None:
        low = max(low, await item.broker.offset_at(item.queue, wanted.begin_ms) - 1)
    if wanted.end_ms is not None:
        high = min(high, await item.broker.offset_at(item.queue, wanted.end_ms + 1) + 1)
    return QueueRange(item.broker, item.queue, low, max(low, high))


async def _ranges_at(admin: Admin, topic: str, places: Sequence[Place]) -> list[QueueRange]:
    known = {queue: broker for broker, queue in await admin.queues_of(topic)}
    found = []
    for place in places:
        queue = MessageQueue(topic, place.broker_name, place.queue_id)
        if queue not in known:
            raise BadCursor(f"the cursor speaks of {queue}, which does not exist: begin again without one")
        found.append(QueueRange(known[queue], queue, place.low, place.high))
    return found


def _within(wanted: Wanted, test: Accepts | None) -> Accepts | None:
    begin_ms, end_ms = wanted.begin_ms, wanted.end_ms
    if begin_ms is None and end_ms is None:
        return test

    def accepts(message: MessageView) -> bool:
        if begin_ms is not None and message.store_ms < begin_ms:
            return False
        if end_ms is not None and message.store_ms > end_ms:
            return False
        return test is None or test(message)

    return accepts


def cut_body(message: MessageView, most: int | None, cut: dict[str, int]) -> None:
    """Keep only the beginning of a long body, and note in `cut` how long it was."""
    if most is not None and len(message.body) > most:
        cut[message.offset_id] = len(message.body)
        message.body = message.body[:most]


class _Backwards:
    """One queue, read from its end."""

    def __init__(self, source: QueueRange, accepts: Accepts | None, body_bytes: int | None) -> None:
        self.source = source
        self._accepts = accepts
        self._body_bytes = body_bytes
        self._unread = source.high
        """Offsets before this are not read yet."""
        self._range = FIRST_RANGE
        self.left = source.high
        """Offsets before this are not looked at yet."""
        self.waiting: deque[tuple[int, int, MessageView | None]] = deque()
        """(store time, offset, the message if it is wanted) of those read and not looked at, the newest first."""
        self.cut: dict[str, int] = {}
        self.problem: RocketlineError | None = None

    @property
    def head(self) -> tuple[int, int]:
        """What comes first is the smallest: the latest store time, then the highest offset."""
        store_ms, offset, _ = self.waiting[0]
        return -store_ms, -offset

    async def read(self) -> None:
        """Read the next range, if there is one."""
        source = self.source
        if self._unread <= source.low:
            return
        begin = max(source.low, self._unread - self._range)
        found, size = [], 0
        try:
            async for message in read_queue(source.broker, source.queue, begin, self._unread):
                size += message.stored_bytes
                found.append((message.store_ms, message.queue_offset, self._kept(message)))
        except RocketlineError as error:
            self.problem = error
            return
        if not found:
            # Queues have no gaps: what is older was deleted too.
            self.left = self._unread = source.low
            return
        self._unread = begin
        self.waiting.extend(reversed(found))
        fitting = RANGE_BYTES * len(found) // size if size else MAX_RANGE
        self._range = max(1, min(self._range * 4, fitting, MAX_RANGE))

    def _kept(self, message: MessageView) -> MessageView | None:
        if self._accepts is not None and not self._accepts(message):
            return None
        cut_body(message, self._body_bytes, self.cut)
        return message

    def take(self) -> MessageView | None:
        _, self.left, message = self.waiting.popleft()
        return message


class _Search:
    """Merges queues."""

    def __init__(self, queues: list[_Backwards], budget: Budget) -> None:
        self.queues = queues
        self._budget = budget
        self.found: list[MessageView] = []
        self.scanned = 0
        self.reached_ms: int | None = None

    async def run(self) -> None:
        if self._budget.most < 1 or self._budget.scan < 1:
            raise ClientError("a search must be allowed to find and to look at one message at least")
        await Admin.gather(queue.read() for queue in self.queues)
        heads = [(*queue.head, number) for number, queue in enumerate(self.queues) if queue.waiting]
        heapify(heads)
        while heads and self.scanned < self._budget.scan and len(self.found) < self._budget.most:
            self.reached_ms, number = -heads[0][0], heads[0][2]
            queue = self.queues[number]
            message = queue.take()
            self.scanned += 1
            if message is not None:
                self.found.append(message)
            if not queue.waiting:
                await queue.read()
            if queue.waiting:
                heapreplace(heads, (*queue.head, number))
            else:
                heappop(heads)

    def missing(self) -> list[Missing]:
        return [
            Missing.of(queue.source.broker.name, queue.source.broker.address, queue.problem)
            for queue in self.queues
            if queue.problem is not None
        ]

    def cursor(self) -> str | None:
        left = [
            Place(queue.source.queue.broker_name, queue.source.queue.queue_id, queue.source.low, queue.left)
            for queue in self.queues
            if queue.left > queue.source.low
        ]
        return encode_cursor(left) if left else None
