"""Finding messages by offset id, key, unique id or queue offset, and reading ranges of queues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

from rocketline.admin.cluster import Admin
from rocketline.admin.partial import Missing, Partial
from rocketline.admin.remote import AdminBroker
from rocketline.client.remote_broker import PullStatus
from rocketline.errors import ClientError, NoPermission, ProtocolError, RocketlineError, RouteNotFound, TransportError
from rocketline.message import RETRY_PREFIX, ConsumerOffset, MessageQueue, MessageView, QueueOffset
from rocketline.protocol.bodies import parse_queue_key
from rocketline.protocol.headers import PullMessageHeader
from rocketline.protocol.headers.read import SUBSCRIPTION, SUSPEND
from rocketline.protocol.message_ids import parse_offset_id
from rocketline.protocol.records import decode_messages

TOOLS_GROUP = "TOOLS_CONSUMER"
"""A group that every broker has, for tools that read without being consumers."""
MAX_UNIQUE = 32
APACHE_PULL = 32
"""What an Apache broker gives at most; ours gives more when asked for more."""
PULL_MESSAGES = 256
FOREVER_MS = (1 << 63) - 1


@dataclass(frozen=True)
class MessageRange:
    """What to read of each queue: from an offset or a store time on, up to a store time; times are inclusive."""

    begin_offset: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    expression: str = "*"


async def by_offset_id(admin: Admin, offset_id: str) -> MessageView:
    """The message with a broker's offset id, which contains the broker's address and the log offset.

    Anybody may have written the id, so only brokers that a name server knows are asked. If none has that address, all are:
    they may be registered with another address than the one they write into ids.
    """
    try:
        address, log_offset = parse_offset_id(offset_id)
    except ProtocolError as error:
        raise ClientError(str(error)) from error
    known = await admin.brokers(slaves=True)
    brokers = [broker for broker in known if broker.address == address] or known
    unasked: RocketlineError | None = None
    for broker in brokers:
        try:
            message = await broker.message_at(log_offset)
        except RocketlineError as error:
            if len(brokers) == 1:
                raise
            unasked = error if isinstance(error, NoPermission | TransportError) else unasked
        else:
            if message.offset_id == offset_id.upper() or broker.address == address:
                return message
    if unasked is not None:
        raise unasked
    raise ClientError(f"no broker of the cluster has a message with the offset id {offset_id}, which names {address}")


async def by_key(
    admin: Admin, topic: str, key: str, most: int, begin_ms: int = 0, end_ms: int = FOREVER_MS
) -> list[MessageView]:
    found = await admin.ask_brokers(
        await admin.brokers_of(topic),
        lambda broker: broker.find(topic, key, most, begin_ms, end_ms, unique=False),
    )
    messages = [message for _, some in found for message in some if key in message.keys]
    return sorted(messages, key=lambda message: message.store_ms)[:most]


async def by_unique_id(admin: Admin, topic: str, unique_id: str) -> list[MessageView]:
    """The message with a unique id and, if it was stored more than once, its copies; an offset id works too."""
    found = await admin.ask_brokers(
        await admin.brokers_of(topic),
        lambda broker: broker.find(topic, unique_id, MAX_UNIQUE, 0, FOREVER_MS, unique=True),
    )
    messages = [
        message for _, some in found for message in some if unique_id in (message.message_id, message.offset_id)
    ]
    return sorted(messages, key=lambda message: message.store_ms)


async def find_message(admin: Admin, message_id: str, topic: str = "") -> Partial[list[MessageView]]:
    """A message by its unique id, which needs its topic, or by a broker's offset id; and who could not look for it.

    A broker that is silent or refuses is no broker that has not got it.
    """
    found: list[MessageView] = []
    missing: list[Missing] = []
    if topic:
        try:
            answers = await admin.ask_each(
                await admin.brokers_of(topic),
                lambda broker: broker.find(topic, message_id, MAX_UNIQUE, 0, FOREVER_MS, unique=True),
            )
        except RouteNotFound:
            answers = Partial([])
        missing += answers.missing
        found = [
            message
            for _, some in answers.value
            for message in some
            if message_id in (message.message_id, message.offset_id)
        ]
    if not found:
        try:
            found = [await by_offset_id(admin, message_id)]
        except (NoPermission, TransportError) as error:
            missing.append(Missing.of("", getattr(error, "address", ""), error))
        except (RocketlineError, ValueError):  # it is no offset id, or no broker has a message there
            pass
    return Partial(sorted(found, key=lambda message: message.store_ms), tuple(missing), bool(found) or not missing)


async def by_queue_offset(admin: Admin, queue: MessageQueue, offset: int) -> MessageView:
    broker = await admin.master(queue.broker_name)
    async for message in read_queue(broker, queue, offset, offset + 1):
        return message
    raise ClientError(f"{queue} has no message at offset {offset}")


async def read_topic(admin: Admin, topic: str, wanted: MessageRange) -> AsyncIterator[MessageView]:
    """The messages of a topic, queue after queue."""
    for broker, queue in await admin.queues_of(topic):
        async for message in read_range(broker, queue, wanted):
            yield message


async def read_range(broker: AdminBroker, queue: MessageQueue, wanted: MessageRange) -> AsyncIterator[MessageView]:
    begin, end = await broker.min_offset(queue), await broker.max_offset(queue)
    if wanted.begin_offset is not None:
        begin = max(begin, QueueOffset(wanted.begin_offset))
    if wanted.begin_ms is not None:
        begin = max(begin, await broker.offset_at(queue, wanted.begin_ms))
    async for message in read_queue(broker, queue, begin, end, wanted.expression):
        if wanted.end_ms is not None and message.store_ms > wanted.end_ms:
            return
        if wanted.begin_ms is None or message.store_ms >= wanted.begin_ms:
            yield message


async def read_queue(
    broker: AdminBroker, queue: MessageQueue, begin: int, end: int, expression: str = "*"
) -> AsyncIterator[MessageView]:
    """Messages of a queue from one offset to before another."""
    offset = begin
    while offset < end:
        pull = pull_header(queue, offset, min(PULL_MESSAGES, end - offset), expression)
        answer = await broker.pull(pull, broker.timeout_s)
        if answer.status is PullStatus.FOUND:
            for message in decode_messages(answer.body):
                message.broker_name = queue.broker_name
                if begin <= message.queue_offset < end and _is_wanted(message, expression):
                    yield message
        if answer.status is PullStatus.NO_NEW or answer.next_offset <= offset:
            return
        offset = answer.next_offset


def pull_header(
    queue: MessageQueue, offset: int, count: int, expression: str = "*", hold_ms: int = 0
) -> PullMessageHeader:
    """A pull of a tool: it commits nothing. With `hold_ms` the broker waits that long for a message."""
    return PullMessageHeader(
        consumer_group=TOOLS_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=QueueOffset(offset),
        max_msg_nums=count,
        sys_flag=SUBSCRIPTION | (SUSPEND if hold_ms else 0),
        commit_offset=ConsumerOffset(0),
        suspend_ms=hold_ms,
        sub_version=0,
        subscription=expression,
        broker_name=queue.broker_name,
        bulk=count > APACHE_PULL,
    )


def _is_wanted(message: MessageView, expression: str) -> bool:
    """Whether the tag matches: brokers compare only hashes of tags, so others may be among the messages."""
    tags = {tag.strip() for tag in expression.split("||")}
    return tags == {"*"} or message.tag in tags


async def consumed_by(admin: Admin, message: MessageView) -> list[tuple[str, str]]:
    """For each group of the topic: (group, `consumed`, `not consumed yet`, or why that is unknown).

    Two requests, however many groups there are.
    """
    broker = await admin.master(message.broker_name)
    groups = await broker.groups_of_topic(message.topic)
    wanted = [group for group in groups if group != TOOLS_GROUP and not group.startswith(RETRY_PREFIX)]
    offsets = await _offsets_at(broker, message.queue, frozenset(wanted)) if wanted else {}
    rows: list[tuple[str, str]] = []
    for group in wanted:
        offset = offsets.get(group)
        if offset is None:
            rows.append((group, "unknown: it has no progress in this queue"))
        else:
            rows.append((group, "consumed" if offset > message.queue_offset else "not consumed yet"))
    return rows


async def _offsets_at(broker: AdminBroker, queue: MessageQueue, groups: Collection[str]) -> dict[str, int]:
    """How far some groups are in a queue."""
    answer = await broker.all_consume_stats()
    return {
        group: item.consumer_offset
        for table in answer.consume_stats_list
        for group, shown in table.items()
        if group in groups
        for stats in shown
        for key, item in stats.offset_table.items()
        if parse_queue_key(key) == queue
    }
