"""Dead letters, messages that a group failed to consume too often: counting, reading, and copying them for sending again.

A group's dead letters are in the topic `%DLQ%group`. The properties of a dead letter name its topic and message. Sent again,
a message keeps its body, tag, keys and user properties, and gets a new id and a property that names the letter it is a copy
of. The dead letter stays where it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

from rocketline.admin.cluster import PRODUCER_GROUP, Admin
from rocketline.admin.messages import MessageRange, by_offset_id, read_topic
from rocketline.admin.partial import Missing, Partial
from rocketline.client import Producer, SendReceipt
from rocketline.errors import ClientError, RocketlineError, RouteNotFound
from rocketline.message import (
    DELAY,
    DLQ_PREFIX,
    KEYS,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RETRY_PREFIX,
    RETRY_TOPIC,
    TAGS,
    TRANSACTION_ID,
    UNIQ_KEY,
    WAIT,
    Message,
    MessageView,
)
from rocketline.protocol.names import dlq_topic

SYSTEM_PROPERTIES = frozenset(
    {
        KEYS, TAGS, UNIQ_KEY, WAIT, DELAY, REAL_TOPIC, REAL_QID, RETRY_TOPIC, ORIGIN_MESSAGE_ID, TRANSACTION_ID, "CLUSTER",
        "MSG_REGION", "TRACE_ON", "MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "RECONSUME_TIME", "MAX_RECONSUME_TIMES",
        "INSTANCE_ID", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "TRAN_MSG", "PGROUP", "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "1ST_POP_TIME", "POP_CK", "UNIQ_CLIENT_MESSAGE_ID_KEYIDX",
    }
)  # fmt: skip
"""Properties that clients and brokers set; a message that is sent again begins without them."""

LETTERS_AT_ONCE = 8

COPIED_FROM = "DLQ_COPIED_FROM"
"""Property of a copy: the offset id of the dead letter."""


@dataclass(frozen=True)
class DeadLetterCount:
    """The number of dead letters of one group, and the time of the last one."""

    group: str
    count: int
    last_ms: int


@dataclass(frozen=True)
class Resent:
    """What became of one dead letter that was to be sent again."""

    letter_id: str
    offset_id: str
    topic: str
    receipt: SendReceipt | None = None
    problem: str | None = None

    @property
    def ok(self) -> bool:
        return self.receipt is not None


async def count_dead_letters(admin: Admin) -> Partial[list[DeadLetterCount]]:
    """The counts of all groups that have dead letters; one request to each broker, and one for each of its DLQ topics."""
    tables = await admin.ask_each(await admin.brokers(), lambda broker: broker.topics())
    places = [(broker, topic) for broker, topics in tables.value for topic in topics if topic.startswith(DLQ_PREFIX)]
    answers = await admin.gather_or_errors(broker.topic_stats(topic) for broker, topic in places)
    found: dict[str, DeadLetterCount] = {}
    missing = list(tables.missing)
    for (broker, topic), stats in zip(places, answers):
        if isinstance(stats, RocketlineError):
            missing.append(Missing.of(broker.name, broker.address, stats))
            continue
        group = topic.removeprefix(DLQ_PREFIX)
        before = found.get(group, DeadLetterCount(group, 0, 0))
        count = sum(item.max_offset - item.min_offset for item in stats.offset_table.values())
        last_ms = max((item.last_update_timestamp for item in stats.offset_table.values()), default=0)
        found[group] = DeadLetterCount(group, before.count + count, max(before.last_ms, last_ms))
    admin.note(missing)
    counts = [found[group] for group in sorted(found) if found[group].count]
    return Partial(counts, tuple(missing), tables.answered)


async def read_dead_letters(admin: Admin, group: str, wanted: MessageRange) -> AsyncIterator[MessageView]:
    """The dead letters of a group; RouteNotFound when it never had any."""
    try:
        async for letter in read_topic(admin, dlq_topic(group), wanted):
            yield letter
    except RouteNotFound as error:
        raise RouteNotFound(f"group {group!r} has no dead letters on any broker") from error


def origin_topic(letter: MessageView) -> str:
    """The topic a dead letter was sent to; empty when it does not say."""
    for name in ("DLQ_ORIGIN_TOPIC", RETRY_TOPIC, REAL_TOPIC):
        topic = letter.properties.get(name, "")
        if topic and not topic.startswith((DLQ_PREFIX, RETRY_PREFIX)):
            return topic
    return ""


def origin_id(letter: MessageView) -> str:
    return letter.properties.get("DLQ_ORIGIN_MESSAGE_ID") or letter.properties.get(ORIGIN_MESSAGE_ID, "")


def copy_of(message: MessageView, topic: str) -> Message:
    """A copy of a message to send to a topic; the copy of a dead letter says so."""
    if not topic:
        raise ClientError(f"dead letter {message.message_id} does not say which topic it was sent to: name one")
    properties = {name: value for name, value in message.properties.items() if name not in SYSTEM_PROPERTIES}
    if message.topic.startswith(DLQ_PREFIX):
        properties[COPIED_FROM] = message.offset_id
    return Message(topic, message.body, tag=message.tag, keys=message.keys, properties=properties, flag=message.flag)


async def letter_by_id(admin: Admin, group: str, offset_id: str) -> MessageView:
    """The dead letter of a group with an offset id; ClientError when it is none."""
    letter = await by_offset_id(admin, offset_id)
    if letter.topic != dlq_topic(group):
        raise ClientError(f"it is no dead letter of group {group!r}")
    return letter


async def resend(admin: Admin, letters: Iterable[MessageView], topic: str | None = None) -> list[Resent]:
    """Send copies of dead letters to a topic, or each to the one it came from; the outcome of each."""
    async with _producer(admin) as producer:
        return [await _resent(admin, producer, letter, topic) for letter in letters]


async def resend_by_id(admin: Admin, group: str, offset_ids: Sequence[str], topic: str | None = None) -> list[Resent]:
    """As `resend`, for letters by their offset ids: only few of them are in memory at a time."""
    at_once = asyncio.Semaphore(LETTERS_AT_ONCE)

    async def one(producer: Producer, offset_id: str) -> Resent:
        async with at_once:
            try:
                letter = await letter_by_id(admin, group, offset_id)
            except RocketlineError as error:
                return Resent(offset_id, offset_id, "", problem=str(error))
            return await _resent(admin, producer, letter, topic)

    async with _producer(admin) as producer:
        return await admin.gather(one(producer, offset_id) for offset_id in offset_ids)


def _producer(admin: Admin) -> Producer:
    return Producer(admin.namesrv, group=PRODUCER_GROUP, options=admin.client_options)


async def _resent(admin: Admin, producer: Producer, letter: MessageView, topic: str | None) -> Resent:
    target = topic or origin_topic(letter)
    try:
        copy = copy_of(letter, target)
        if topic is None:
            # A broker may create topics that it is sent to: one that was deleted must not come back by this.
            await admin.route(target)
        receipt = await producer.send(copy)
    except RocketlineError as error:
        return Resent(letter.message_id, letter.offset_id, target, problem=str(error))
    return Resent(letter.message_id, letter.offset_id, target, receipt)
