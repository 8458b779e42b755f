"""Messages that wait for their time: by delay level, and timer messages with a time of their own.

By level they are in SCHEDULE_TOPIC_XXXX, a queue for each level, in order of their time. Timer messages are in
rmq_sys_wheel_timer in order of arrival. Both name their real topic in a property.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from rocketline.admin.cluster import PRODUCER_GROUP, Admin
from rocketline.admin.messages import PULL_MESSAGES, read_queue
from rocketline.admin.partial import Partial, merged
from rocketline.admin.remote import AdminBroker
from rocketline.admin.search import Budget, newest_in, queue_ranges
from rocketline.errors import ClientError, ProtocolError
from rocketline.message import REAL_QID, REAL_TOPIC, RETRY_PREFIX, UNIQ_KEY, MessageQueue, MessageView
from rocketline.protocol.numbers import read_number
from rocketline.protocol.recall import RecallHandle

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class LevelCount:
    """How many messages of one delay level wait on one broker."""

    broker: str
    level: int
    delay: str
    """As the broker's settings have it: `10s`."""
    waiting: int
    next_due_ms: int | None


@dataclass(frozen=True)
class Waiting:
    """A message that waits."""

    message: MessageView
    topic: str
    """Where it goes."""
    queue_id: int | None
    due_ms: int
    level: int | None = None
    handle: str | None = None
    """With which it can be recalled; None when it cannot."""


@dataclass(frozen=True)
class TimerState:
    """The timer messages of one broker."""

    broker: str
    address: str
    waiting: dict[str, int]
    """By topic."""
    read_ms: int
    """Messages that were due before this time are delivered."""
    queue_offset: int
    """Messages of the timer queue before this offset were taken in."""


@dataclass(frozen=True)
class _Levels:
    """The delay levels of a broker: their names, and up to where each was delivered."""

    names: list[str]
    delivered: dict[int, int]

    def delay_ms(self, level: int) -> int:
        name = self.names[level - 1] if 0 < level <= len(self.names) else "0s"
        found = re.fullmatch(r"(\d{1,12})([smhd])", name)
        return int(found[1]) * _UNITS_MS[found[2]] if found else 0


async def _levels(broker: AdminBroker) -> _Levels:
    settings = await broker.config()
    names = settings.get("messageDelayLevel", LEVELS).split()
    return _Levels(names, await broker.delay_offsets())


async def level_counts(admin: Admin) -> Partial[list[LevelCount]]:
    """The levels with messages that wait; three requests to each broker, and one for each such level."""
    found = await _waiting_by_level(admin, None, 1)
    rows = [
        LevelCount(broker.name, level, levels.names[level - 1], count, first[0].due_ms if first else None)
        for broker, levels, level, count, first in found.value
        if level <= len(levels.names)
    ]
    return Partial(rows, found.missing, found.answered)


async def delayed_messages(admin: Admin, *, level: int | None = None, most: int = 100) -> Partial[list[Waiting]]:
    """The messages that wait by level, the next to be delivered first; of each level and broker at most `most`."""
    found = await _waiting_by_level(admin, level, most)
    messages = [item for *_, some in found.value for item in some]
    return Partial(sorted(messages, key=lambda item: item.due_ms)[:most], found.missing, found.answered)


async def _waiting_by_level(
    admin: Admin, wanted: int | None, most: int
) -> Partial[list[tuple[AdminBroker, _Levels, int, int, list[Waiting]]]]:
    """For each broker and level with messages: (broker, its levels, level, how many wait, the first of them)."""
    brokers = await admin.brokers()
    levels = await admin.ask_each(brokers, _levels)
    of_broker = {broker.name: item for broker, item in levels.value}
    ranges = await queue_ranges(admin, SCHEDULE_TOPIC, (broker for broker, _ in levels.value))
    places = []
    for item in ranges.value:
        level = item.queue.queue_id + 1
        low = max(item.low, of_broker[item.broker.name].delivered.get(level, 0))
        if low < item.high and wanted in (None, level):
            places.append((item.broker, of_broker[item.broker.name], level, item.queue, low, item.high))
    read = await admin.gather(
        _first_waiting(broker, queue, low, min(high, low + most), level, known.delay_ms(level))
        for broker, known, level, queue, low, high in places
    )
    rows = [
        (broker, known, level, high - low, some) for (broker, known, level, _, low, high), some in zip(places, read)
    ]
    return Partial(rows, merged(levels, ranges), levels.answered)


async def _first_waiting(
    broker: AdminBroker, queue: MessageQueue, low: int, high: int, level: int, delay_ms: int
) -> list[Waiting]:
    return [
        _waiting(message, message.store_ms + delay_ms, level=level)
        async for message in read_queue(broker, queue, low, high)
    ]


def _waiting(message: MessageView, due_ms: int, *, level: int | None = None, handle: str | None = None) -> Waiting:
    topic = message.properties.get(REAL_TOPIC, "")
    return Waiting(message, topic, read_number(message.properties.get(REAL_QID)), due_ms, level, handle)


async def timer_states(admin: Admin) -> Partial[list[TimerState]]:
    """How many timer messages wait, and how far delivery is; two requests to each broker."""

    async def state(broker: AdminBroker) -> TimerState:
        counts, mark = await broker.timer_counts(), await broker.timer_check_point()
        waiting = {topic: count for topic, count in counts.items() if count > 0}
        return TimerState(broker.name, broker.address, waiting, mark.read_ms, mark.queue_offset)

    answers = await admin.ask_each(await admin.brokers(), state)
    return answers.map(lambda found: [item for _, item in found])


async def timer_messages(admin: Admin, *, most: int = 100, scan: int = 10_000) -> Partial[list[Waiting]]:
    """Timer messages that wait, the next to be delivered first; without recalled ones. Of each broker the last `scan`
    messages of the timer queue are looked at."""
    ranges = await queue_ranges(admin, TIMER_TOPIC, await admin.brokers())
    page = await newest_in(ranges, None, Budget(most=scan, scan=scan, body_bytes=PULL_MESSAGES))
    now_ms = time.time() * 1000
    recalled: set[str] = set()
    found: dict[str, Waiting] = {}
    for message in page.messages:  # the newest first: a recall comes before what it recalls
        properties = message.properties
        if TIMER_DEL_UNIQKEY in properties:
            recalled.add(properties[TIMER_DEL_UNIQKEY])
            continue
        due_ms = read_number(properties.get(TIMER_OUT_MS))
        unique, topic = properties.get(UNIQ_KEY, message.offset_id), properties.get(REAL_TOPIC, "")
        # Apache's broker puts the topic before the id.
        if due_ms is None or due_ms <= now_ms or recalled & {unique, f"{topic}+{unique}"} or unique in found:
            continue
        found[unique] = _waiting(message, due_ms, handle=_handle(message, topic, due_ms))
    return Partial(sorted(found.values(), key=lambda item: item.due_ms)[:most], page.missing, ranges.answered)


def _handle(message: MessageView, topic: str, due_ms: int) -> str | None:
    unique = message.properties.get(UNIQ_KEY)
    if not topic or topic.startswith(RETRY_PREFIX) or not unique:
        return None
    return RecallHandle(topic, message.broker_name, due_ms + 1, unique).encode()


async def recall(admin: Admin, handle: str) -> str:
    """Have a timer message not delivered (370); returns its unique id. BrokerError says why it cannot be recalled."""
    try:
        wanted = RecallHandle.decode(handle)
    except ProtocolError as error:
        raise ClientError(f"{handle[:200]!r} is no recall handle") from error
    broker = await admin.master(wanted.broker_name)
    return await broker.recall(PRODUCER_GROUP, wanted.topic, handle, broker.timeout_s)
