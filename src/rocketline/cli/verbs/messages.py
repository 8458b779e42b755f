"""Verbs about messages: finding them, and reading parts of a topic."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rocketline.cli.tables import Ms, Table, facts, sentence
from rocketline.cli.times import parse_time_ms
from rocketline.cli.usage import UsageProblem
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.common import BEGIN, END, IGNORED, IGNORED_CLUSTER, TOPIC

if TYPE_CHECKING:
    from rocketline.admin import Admin
    from rocketline.admin.messages import MessageRange
    from rocketline.message import MessageView

MAX_SHOWN = 1000
"""Messages shown unless asked for more: a topic may have millions."""

BODY_FORMAT = Flag("f", "bodyFormat", "Character set of the body; default UTF-8.", default="utf-8")
COUNT = Flag("", "max", f"Messages shown at most; default {MAX_SHOWN}.", kind=int, default=MAX_SHOWN)


def body_text(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, "backslashreplace")
    except LookupError as error:
        raise UsageProblem(f"{charset!r} is not a character set") from error


def message_facts(message: MessageView, charset: str = "utf-8") -> Table:
    """All that is known of one message."""
    pairs: list[tuple[str, Any]] = [
        ("offset id", message.offset_id),
        ("topic", message.topic),
        ("tag", message.tag),
        ("keys", list(message.keys)),
        ("broker", message.broker_name),
        ("queue", message.queue_id),
        ("queue offset", message.queue_offset),
        ("log offset", message.log_offset),
        ("reconsume times", message.reconsume_times),
        ("born", Ms(message.born_ms)),
        ("stored", Ms(message.store_ms)),
        ("born host", message.born_host),
        ("store host", message.store_host),
        ("system flag", message.sys_flag),
        ("properties", message.properties),
        ("body", body_text(message.body, charset)),
    ]
    return facts(pairs, subject={"message_id": message.message_id})


def message_table(messages: list[MessageView], *, with_body: bool = True, charset: str = "utf-8") -> Table:
    columns = ["id", "broker", "queue", "offset", "stored", "tag", "keys", "retries"]
    table = Table([*columns, "body"] if with_body else columns)
    for message in messages:
        place = (message.message_id, message.broker_name, message.queue_id, message.queue_offset, Ms(message.store_ms))
        row = (*place, message.tag, list(message.keys), message.reconsume_times)
        table.rows.append((*row, body_text(message.body, charset)) if with_body else row)
    return table


async def _consumed_by(admin: Admin, message: MessageView) -> Table:
    from rocketline.admin.messages import consumed_by

    return Table(("group", "state"), sorted(await consumed_by(admin, message)), "consumed by")


@verb(
    "queryMsgById",
    "The message with a broker's offset id (or a unique id).",
    Flag("t", "topic", "Topic; needed for a unique id."),
    Flag("i", "msgId", "Ids, separated by commas.", required=True),
    Flag("g", "consumerGroup", "Let a consumer of this group handle it now; needs -d."),
    Flag("d", "clientId", "Id of that consumer."),
    Flag("s", "sendMessage", "Send it again.", kind=bool, default=False),
    Flag("u", "unitName", IGNORED),
    BODY_FORMAT,
    IGNORED_CLUSTER,
    aliases=("message", "query-message"),
)
async def query_msg_by_id(admin: Admin, args: Args) -> AsyncIterator[Table]:
    for message_id in filter(None, (item.strip() for item in args.msg_id.split(","))):
        for message in await _by_any_id(admin, args.topic, message_id):
            yield message_facts(message, args.body_format)
            async for table in _requested_extras(admin, args, message):
                yield table


async def _by_any_id(admin: Admin, topic: str | None, message_id: str) -> list[MessageView]:
    from rocketline.admin.messages import by_offset_id, by_unique_id
    from rocketline.errors import ClientError, RocketlineError

    failure: RocketlineError | None = None
    if topic:
        found = await by_unique_id(admin, topic, message_id)
        if found:
            return found
    try:
        return [await by_offset_id(admin, message_id)]
    except RocketlineError as error:
        failure = error
    where = f"in topic {topic!r}" if topic else "by its place in a log (a unique id needs -t TOPIC)"
    raise ClientError(f"no message {message_id} {where}: {failure}") from failure


async def _requested_extras(admin: Admin, args: Args, message: MessageView) -> AsyncIterator[Table]:
    """Let a consumer handle the message, or send it again, if asked to; otherwise show which groups have consumed it."""
    if args.client_id and args.consumer_group:
        broker = await admin.master(message.broker_name)
        done = await broker.consume_directly(args.consumer_group, args.client_id, message.offset_id)
        yield facts(
            [
                ("client", args.client_id),
                ("result", done.consume_result),
                ("took ms", done.spent_time_mills),
                ("remark", done.remark),
            ],
            "handled",
        )
    elif getattr(args, "send_message", False):
        yield await _sent_again(admin, message)
    else:
        yield await _consumed_by(admin, message)


async def _sent_again(admin: Admin, message: MessageView) -> Table:
    from rocketline.admin.cluster import PRODUCER_GROUP
    from rocketline.admin.dead_letters import copy_of
    from rocketline.client import Producer

    async with Producer(admin.namesrv, group=PRODUCER_GROUP, options=admin.client_options) as producer:
        receipt = await producer.send(copy_of(message, message.topic))
    return sentence(f"sent again as {receipt.message_id} to {receipt.queue} at {receipt.queue_offset}")


@verb(
    "queryMsgByUniqueKey",
    "The message with a producer's unique id.",
    Flag("i", "msgId", "Unique id.", required=True),
    Flag("g", "consumerGroup", "Let a consumer of this group handle it now; needs -d."),
    Flag("d", "clientId", "Id of that consumer."),
    TOPIC,
    Flag("a", "showAll", "All copies, if it was stored more than once.", switch=True),
    IGNORED_CLUSTER,
)
async def query_msg_by_unique_key(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.messages import by_unique_id
    from rocketline.errors import ClientError

    found = await by_unique_id(admin, args.topic, args.msg_id)
    if not found:
        raise ClientError(f"no message {args.msg_id} in topic {args.topic!r}")
    for message in found if args.show_all else found[:1]:
        yield message_facts(message)
        async for table in _requested_extras(admin, args, message):
            yield table


@verb(
    "queryMsgByKey",
    "Messages with a key.",
    TOPIC,
    Flag("k", "msgKey", "Key.", required=True),
    BEGIN,
    END,
    Flag("m", "maxNum", "At most this many; default 64.", kind=int, default=64),
    IGNORED_CLUSTER,
)
async def query_msg_by_key(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.messages import FOREVER_MS, by_key

    end_ms = FOREVER_MS if args.end_timestamp is None else args.end_timestamp
    found = await by_key(admin, args.topic, args.msg_key, args.max_num, args.begin_timestamp or 0, end_ms)
    table = message_table(found)
    if len(found) >= args.max_num:
        table.about = f"there may be more than these {args.max_num}: use -m, or -b and -e"
    yield table


@verb(
    "queryMsgByOffset",
    "The message at an offset of a queue.",
    TOPIC,
    Flag("b", "brokerName", "Name of the broker.", required=True),
    Flag("i", "queueId", "Queue.", kind=int, required=True),
    Flag("o", "offset", "Queue offset.", kind=int, required=True),
    BODY_FORMAT,
)
async def query_msg_by_offset(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.messages import by_queue_offset
    from rocketline.message import MessageQueue

    queue = MessageQueue(args.topic, args.broker_name, args.queue_id)
    message = await by_queue_offset(admin, queue, args.offset)
    yield message_facts(message, args.body_format)
    yield await _consumed_by(admin, message)


def range_of(args: Args) -> MessageRange:
    from rocketline.admin.messages import MessageRange

    return MessageRange(
        begin_ms=args.begin_timestamp,
        end_ms=args.end_timestamp,
        expression=getattr(args, "sub_expression", None) or "*",
    )


async def first_messages(messages: AsyncIterator[MessageView], most: int) -> tuple[list[MessageView], bool]:
    """(the first `most` messages, whether there are more)."""
    found: list[MessageView] = []
    async for message in messages:
        if len(found) >= most:
            return found, True
        found.append(message)
    return found, False


def _limited_table(found: list[MessageView], more: bool, args: Args, *, with_body: bool = True) -> Table:
    table = message_table(found, with_body=with_body, charset=getattr(args, "charset_name", None) or "utf-8")
    if more:
        table.about = f"there are more than these {len(found)}: use --max, -b and -e"
    return table


CHARSET = Flag("c", "charsetName", "Character set of bodies; default UTF-8.", default="utf-8")
EXPRESSION = Flag("s", "subExpression", "Tags wanted: `a || b`.", default="*")


@verb(
    "printMsg",
    "The messages of a topic.",
    TOPIC,
    CHARSET,
    EXPRESSION,
    BEGIN,
    END,
    Flag("d", "printBody", "With bodies.", kind=bool, default=True),
    Flag("l", "lmqParentTopic", IGNORED),
    COUNT,
    aliases=("messages",),
)
async def print_msg(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.messages import read_topic

    found, more = await first_messages(read_topic(admin, args.topic, range_of(args)), args.max)
    yield _limited_table(found, more, args, with_body=args.print_body)


@verb(
    "printMsgByQueue",
    "The messages of one queue.",
    TOPIC,
    Flag("a", "brokerName", "Name of the broker.", required=True),
    Flag("i", "queueId", "Queue.", kind=int, required=True),
    CHARSET,
    EXPRESSION,
    BEGIN,
    END,
    Flag("p", "printMsg", "Show messages.", kind=bool, default=True),
    Flag("d", "printBody", "With bodies.", kind=bool, default=True),
    Flag("f", "calculate", "Count the messages of each tag.", kind=bool, default=False),
    COUNT,
)
async def print_msg_by_queue(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from collections import Counter

    from rocketline.admin.messages import read_range
    from rocketline.message import MessageQueue

    broker = await admin.master(args.broker_name)
    queue = MessageQueue(args.topic, args.broker_name, args.queue_id)
    found, more = await first_messages(read_range(broker, queue, range_of(args)), args.max)
    if args.calculate:
        tags = Counter(message.tag or "" for message in found)
        yield Table(("tag", "messages"), list(tags.most_common()), "tags")
    if args.print_msg:
        shown = _limited_table(found, more, args, with_body=args.print_body)
        shown.title = "messages" if args.calculate else ""
        yield shown


@verb(
    "consumeMessage",
    "Show messages of a topic; the progress of no group changes.",
    TOPIC,
    Flag("b", "brokerName", "Name of the broker; with -i."),
    Flag("i", "queueId", "Queue; with -b.", kind=int),
    Flag("o", "offset", "First queue offset.", kind=int),
    Flag("g", "consumerGroup", IGNORED),
    Flag("s", "beginTimestamp", "Stored at or after.", kind=parse_time_ms),
    Flag("e", "endTimestamp", "Stored at or before.", kind=parse_time_ms),
    Flag("c", "MessageNumber", "At most this many; default 128.", kind=int, default=128),
)
async def consume_message(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.messages import read_range, read_topic
    from rocketline.message import MessageQueue

    wanted = replace(range_of(args), begin_offset=args.offset)
    if args.broker_name is None and args.queue_id is None:
        messages = read_topic(admin, args.topic, wanted)
    elif args.broker_name is not None and args.queue_id is not None:
        queue = MessageQueue(args.topic, args.broker_name, args.queue_id)
        messages = read_range(await admin.master(args.broker_name), queue, wanted)
    else:
        raise UsageProblem("-b and -i belong together: each broker has its own queues")
    found, _ = await first_messages(messages, args.message_number)
    yield message_table(found)


@verb(
    "decodeMessageId",
    "The address and the log offset in a broker's offset id.",
    Flag("i", "messageId", "Offset id.", required=True),
)
async def decode_message_id(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.protocol.message_ids import parse_offset_id

    address, log_offset = parse_offset_id(args.message_id)
    yield facts([("address", address), ("log offset", log_offset)])


@verb(
    "queryCq",
    "Entries of a consume queue.",
    TOPIC,
    Flag("q", "queue", "Queue.", kind=int, required=True),
    Flag("i", "index", "First entry.", kind=int, required=True),
    Flag("c", "count", "How many; default 10.", kind=int, default=10),
    Flag("b", "broker", "Address of the broker."),
    Flag("g", "consumer", "Consumer group whose subscription is shown.", default=""),
    aliases=("consume-queue",),
)
async def query_cq(admin: Admin, args: Args) -> AsyncIterator[Table]:
    if args.broker:
        broker = await admin.named_broker_at(args.broker)
    else:
        broker = (await admin.brokers_of(args.topic))[0]
    body = await broker.consume_queue(args.topic, args.queue, args.index, args.count, args.consumer)
    table = Table(("index", "log offset", "size", "tags code"))
    for number, unit in enumerate(body.queue_data, args.index):
        table.rows.append((number, unit.physic_offset, unit.physic_size, unit.tags_code))
    table.about = f"the queue has entries {body.min_queue_index} to {body.max_queue_index - 1}"
    yield table
