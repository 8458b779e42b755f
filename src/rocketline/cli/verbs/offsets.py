"""Verbs about the offsets of consumer groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from rocketline.cli.tables import Ms, Table, sentence
from rocketline.cli.times import parse_time_ms
from rocketline.cli.usage import UsageProblem
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.common import IGNORED, TOPIC
from rocketline.message import MessageQueue

if TYPE_CHECKING:
    from rocketline.admin import Admin

GROUP = Flag("g", "group", "Consumer group.", required=True)
FORCE = Flag("f", "force", "Move forward too; false: only back.", kind=bool, default=True)


def _moved(offsets: dict[MessageQueue, int]) -> Table:
    rows = [(queue.broker_name, queue.queue_id, offset) for queue, offset in sorted(offsets.items())]
    return Table(("broker", "queue", "new offset"), list(rows))


@verb(
    "resetOffsetByTime",
    "Move a group to a time: back to consume again, forward to skip.",
    GROUP,
    TOPIC,
    Flag(
        "s", "timestamp", "now, milliseconds, 2026-05-31#12:00:00:000; -1: the end.", kind=parse_time_ms, required=True
    ),
    FORCE,
    Flag("b", "broker", "Only the broker at this address."),
    Flag("q", "queue", "Only this queue; needs -b.", kind=int, default=-1),
    Flag("o", "offset", "Move that queue to this offset.", kind=int),
    Flag("", "preview", "Only show what it would do: messages repeated and skipped.", switch=True),
    Flag("c", "cluster", IGNORED),
    aliases=("reset-offset",),
)
async def reset_offset_by_time(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.progress import reset

    if args.queue >= 0 and not args.broker:
        raise UsageProblem("-q needs -b: each broker has its own queues")
    if args.preview:
        yield await _preview(admin, args)
        return
    yield _moved(
        await reset(
            admin,
            args.group,
            args.topic,
            args.timestamp,
            force=args.force,
            broker_addr=args.broker,
            queue_id=args.queue,
            offset=args.offset,
        )
    )


async def _preview(admin: Admin, args: Args) -> Table:
    from rocketline.admin.resets import preview_reset

    broker = (await admin.named_broker_at(args.broker)).name if args.broker else None
    offsets = None
    if args.offset is not None and broker is not None and args.queue >= 0:
        offsets = {MessageQueue(args.topic, broker, args.queue): args.offset}
    found = await preview_reset(
        admin, args.group, args.topic, to_ms=None if offsets else args.timestamp, offsets=offsets
    )
    table = Table(("broker", "queue", "from", "to", "repeated", "skipped"))
    for move in found.some():
        queue = move.queue
        if broker in (None, queue.broker_name) and args.queue in (-1, queue.queue_id):
            place = (queue.broker_name, queue.queue_id, move.before, move.after)
            table.rows.append((*place, move.repeats, move.skips))
    table.about = f"{sum(row[4] for row in table.rows)} repeated, {sum(row[5] for row in table.rows)} skipped"
    return table


@verb(
    "skipAccumulatedMessage",
    "Let a group skip all messages it has not consumed yet.",
    GROUP,
    TOPIC,
    FORCE,
    Flag("c", "cluster", IGNORED),
    aliases=("skip-lag",),
)
async def skip_accumulated_message(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.progress import reset

    yield _moved(await reset(admin, args.group, args.topic, -1, force=args.force))


@verb(
    "cloneGroupOffset",
    "Give one group the progress of another.",
    Flag("s", "srcGroup", "The group that has it.", required=True),
    Flag("d", "destGroup", "The group that gets it.", required=True),
    TOPIC,
    Flag("o", "offline", "Also if no consumer of that group is online.", kind=bool, default=True),
    aliases=("clone-offset",),
)
async def clone_group_offset(admin: Admin, args: Args) -> AsyncIterator[Table]:
    for broker in await admin.brokers_of(args.topic):
        await broker.clone_offsets(args.src_group, args.dest_group, args.topic, offline=args.offline)
        yield sentence(f"{broker.name}: {args.dest_group} now has the offsets of {args.src_group} in {args.topic}")


@verb(
    "consumeTimeSpan",
    "Store times of the oldest, the newest and the last consumed message of each queue.",
    GROUP,
    TOPIC,
    aliases=("time-span",),
)
async def consume_time_span(admin: Admin, args: Args) -> AsyncIterator[Table]:
    table = Table(("broker", "queue", "oldest", "newest", "consumed", "waiting s"))
    brokers = await admin.brokers_of(args.topic)
    for _, spans in await admin.ask_brokers(brokers, lambda broker: broker.time_spans(args.topic, args.group)):
        for span in spans.consume_time_span_set:
            queue = span.message_queue
            times = (Ms(span.min_time_stamp), Ms(span.max_time_stamp), Ms(span.consume_time_stamp))
            table.rows.append((queue.broker_name, queue.queue_id, *times, span.delay_time / 1000))
    table.rows.sort(key=lambda row: row[:2])
    yield table


@verb(
    "getConsumerStatus",
    "The offsets of each online consumer of a group, as reported by it.",
    GROUP,
    TOPIC,
    Flag("i", "originClientId", "Only this client."),
)
async def get_consumer_status(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.protocol.bodies import parse_queue_key

    table = Table(("client", "broker", "queue", "offset"))
    brokers = await admin.brokers_of(args.topic)
    call = await admin.ask_brokers(
        brokers, lambda broker: broker.positions(args.topic, args.group, args.origin_client_id)
    )
    rows = {
        (client, queue.broker_name, queue.queue_id, offset)
        for _, status in call
        for client, offsets in status.consumer_table.items()
        for queue, offset in ((parse_queue_key(key), offset) for key, offset in offsets.items())
    }
    table.rows += sorted(rows)
    yield table
