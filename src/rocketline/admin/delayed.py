"""Messages that wait for their time: by delay level, and timer messages with a time of their own.

By level they are in SCHEDULE_TOPIC_XXXX, a queue for each level, in order of their time. Timer messages are in
rmq_sys_wheel_timer in order of arrival. Both name their real topic in a property.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rocketline.admin.cluster import PRODUCER_GROUP, Admin
from rocketline.admin.messages import PULL_MESSAGES, read_queue
from rocketline.admin.partial import Partial, merged
from rocketline.admin.remote import AdminBroker
from rocketline.admin.search import Budget, cut_body, newest_in, queue_ranges
from rocketline.errors import ClientError, ProtocolError
from rocketline.message import REAL_QID, REAL_TOPIC, RETRY_PREFIX, UNIQ_KEY, MessageQueue, MessageView
from rocketline.protocol.numbers import read_number
from rocketline.protocol.recall import RecallHandle

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
RECALL_SETTING = "recallMessageEnable"
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
    body_bytes: int = 0
    """Of the whole body, of which the message may have only the beginning."""


@dataclass(frozen=True)
class ByLevel:
    """What waits by delay level."""

    counts: list[LevelCount]
    messages: list[Waiting]
    """The next to be delivered first."""


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

    def name(self, level: int) -> str:
        """Empty for a level that the settings do not have any more."""
        return self.names[level - 1] if 0 < level <= len(self.names) else ""

    def delay_ms(self, level: int) -> int:
        found = re.fullmatch(r"(\d{1,12})([smhd])", self.name(level))
        return int(found[1]) * _UNITS_MS[found[2]] if found else 0


async def _levels(broker: AdminBroker) -> _Levels:
    settings = await broker.config()
    names = settings.get("messageDelayLevel", LEVELS).split()
    return _Levels(names, await broker.delay_offsets())


async def level_counts(admin: Admin) -> Partial[list[LevelCount]]:
    """The levels with messages that wait; three requests to each broker, and one for each such level."""
    found = await waiting_by_level(admin, most=1)
    return replace(found.map(lambda both: both.counts), limited=False)


async def delayed_messages(
    admin: Admin, *, level: int | None = None, most: int = 100, body_bytes: int | None = None
) -> Partial[list[Waiting]]:
    """The messages that wait by level, the next to be delivered first."""
    return (await waiting_by_level(admin, level, most, body_bytes)).map(lambda both: both.messages)


async def waiting_by_level(
    admin: Admin, level: int | None = None, most: int = 100, body_bytes: int | None = None
) -> Partial[ByLevel]:
    """How many messages wait at all levels, and the first `most` of them or of one level."""
    places = await _places(admin)
    wanted = [place for place in places.value if level in (None, place.level)]
    read = await admin.gather(
        _first_waiting(place, most if level in (None, place.level) else 1, body_bytes) for place in places.value
    )
    counts = [
        LevelCount(place.broker.name, place.level, place.name, place.count, some[0].due_ms if some else None)
        for place, some in zip(places.value, read)
    ]
    found = [item for place, some in zip(places.value, read) if level in (None, place.level) for item in some]
    found.sort(key=lambda item: item.due_ms)
    limited = len(found) > most or any(place.count > most for place in wanted)
    return Partial(ByLevel(counts, found[:most]), places.missing, places.answered, limited)


@dataclass(frozen=True)
class _Place:
    """A queue of delayed messages in which something waits."""

    broker: AdminBroker
    queue: MessageQueue
    low: int
    high: int
    name: str
    delay_ms: int

    @property
    def level(self) -> int:
        return self.queue.queue_id + 1

    @property
    def count(self) -> int:
        return self.high - self.low


async def _places(admin: Admin) -> Partial[list[_Place]]:
    levels = await admin.ask_each(await admin.brokers(), _levels)
    of_broker = {broker.name: item for broker, item in levels.value}
    ranges = await queue_ranges(admin, SCHEDULE_TOPIC, (broker for broker, _ in levels.value))
    places = []
    for item in ranges.value:
        known, level = of_broker[item.broker.name], item.queue.queue_id + 1
        low = max(item.low, known.delivered.get(level, 0))
        if low < item.high:
            place = _Place(item.broker, item.queue, low, item.high, known.name(level), known.delay_ms(level))
            places.append(place)
    return Partial(places, merged(levels, ranges), levels.answered)


async def _first_waiting(place: _Place, most: int, body_bytes: int | None) -> list[Waiting]:
    found: list[Waiting] = []
    cut: dict[str, int] = {}
    async for message in read_queue(place.broker, place.queue, place.low, min(place.high, place.low + most)):
        size = len(message.body)
        cut_body(message, body_bytes, cut)
        found.append(_waiting(message, message.store_ms + place.delay_ms, size, level=place.level))
    return found


def _waiting(
    message: MessageView, due_ms: int, body_bytes: int, *, level: int | None = None, handle: str | None = None
) -> Waiting:
    topic = message.properties.get(REAL_TOPIC, "")
    queue_id = read_number(message.properties.get(REAL_QID))
    return Waiting(message, topic, queue_id, due_ms, level, handle, body_bytes)


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
        size = page.cut.get(message.offset_id, len(message.body))
        found[unique] = _waiting(message, due_ms, size, handle=_handle(message, topic, due_ms))
    limited = page.next is not None or len(found) > most
    shown = sorted(found.values(), key=lambda item: item.due_ms)[:most]
    return Partial(shown, page.missing, ranges.answered, limited)


def _handle(message: MessageView, topic: str, due_ms: int) -> str | None:
    unique = message.properties.get(UNIQ_KEY)
    if not topic or topic.startswith(RETRY_PREFIX) or not unique:
        return None
    return RecallHandle(topic, message.broker_name, due_ms + 1, unique).encode()


async def no_recall_at(admin: Admin, names: Iterable[str]) -> list[str]:
    """The brokers among these that say in their settings that they take no message back, as they do by default."""
    wanted = set(names)
    brokers = [broker for broker in await admin.brokers() if broker.name in wanted]
    answers = await admin.ask_each(brokers, lambda broker: broker.config())
    return [broker.name for broker, settings in answers.value if settings.get(RECALL_SETTING) == "false"]


async def recall(admin: Admin, handle: str) -> str:
    """Have a timer message not delivered (370); returns its unique id. BrokerError says why it cannot be recalled."""
    try:
        wanted = RecallHandle.decode(handle)
    except ProtocolError as error:
        raise ClientError(f"{handle[:200]!r} is no recall handle") from error
    broker = await admin.master(wanted.broker_name)
    return await broker.recall(PRODUCER_GROUP, wanted.topic, handle, broker.timeout_s)
