"""Verbs that send messages, and that measure how long sends take."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rocketline.cli.tables import Table
from rocketline.cli.usage import UsageProblem
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.common import IGNORED, ONE_CLUSTER, TOPIC

if TYPE_CHECKING:
    from rocketline.admin import Admin


@verb(
    "sendMessage",
    "Send a message.",
    TOPIC,
    Flag("p", "body", "Body.", required=True),
    Flag("k", "key", "Keys, separated by spaces."),
    Flag("c", "tags", "Tag."),
    Flag("b", "broker", "Name of the broker; with -i."),
    Flag("i", "qid", "Queue; with -b.", kind=int),
    Flag("m", "msgTraceEnable", "Write a trace.", kind=bool, default=False),
    aliases=("send",),
)
async def send_message(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.cluster import PRODUCER_GROUP
    from rocketline.client import Producer
    from rocketline.message import Message, MessageQueue

    if (args.broker is None) != (args.qid is None):
        raise UsageProblem("-b and -i belong together: each broker has its own queues")
    queue = MessageQueue(args.topic, args.broker, args.qid) if args.broker is not None else None
    message = Message(args.topic, args.body.encode(), tag=args.tags, keys=(args.key or "").split())
    options = replace(admin.client_options, trace=args.msg_trace_enable)
    async with Producer(admin.namesrv, group=PRODUCER_GROUP, options=options) as producer:
        receipt = await producer.send(message, queue=queue)
    place = (receipt.queue.broker_name, receipt.queue.queue_id, receipt.queue_offset)
    yield Table(
        ("broker", "queue", "offset", "status", "id", "offset id"),
        [(*place, receipt.status.value, receipt.message_id, receipt.offset_id)],
    )


@verb(
    "checkMsgSendRT",
    "How long sends to a topic take.",
    TOPIC,
    Flag("a", "amount", "Messages; default 100.", kind=int, default=100),
    Flag("s", "size", "Bytes of each; default 128.", kind=int, default=128),
    aliases=("send-rt",),
)
async def check_msg_send_rt(admin: Admin, args: Args) -> AsyncIterator[Table]:
    yield await _timed_sends(admin, args.topic, args.amount, args.size)


@verb(
    "sendMsgStatus",
    "Send messages to a broker, to check that it stores them.",
    Flag("b", "brokerName", "Name of the broker.", required=True),
    Flag("s", "messageSize", "Bytes of each; default 128.", kind=int, default=128),
    Flag("c", "count", "Messages; default 50.", kind=int, default=50),
)
async def send_msg_status(admin: Admin, args: Args) -> AsyncIterator[Table]:
    await admin.master(args.broker_name)
    yield await _timed_sends(admin, args.broker_name, args.count, args.message_size)


@verb(
    "clusterRT",
    "How long sends to each broker of a cluster take.",
    Flag("a", "amount", "Messages; default 100.", kind=int, default=100),
    Flag("s", "size", "Bytes of each; default 128.", kind=int, default=128),
    ONE_CLUSTER,
    Flag("p", "printLog", IGNORED, kind=bool),
    Flag("m", "machineRoom", IGNORED),
    Flag("i", "interval", "Repeat after this many seconds, as --watch.", kind=float),
)
async def cluster_rt(admin: Admin, args: Args) -> AsyncIterator[Table]:
    table = Table(("broker", "sends", "failed", "mean ms", "worst ms"))
    for broker in await admin.brokers(args.cluster):
        one = await _timed_sends(admin, broker.name, args.amount, args.size)
        failed = sum(not row[2] for row in one.rows)
        times = [row[3] for row in one.rows if row[2]] or [0.0]
        table.rows.append((broker.name, len(one.rows), failed, sum(times) / len(times), max(times)))
    yield table


async def _timed_sends(admin: Admin, topic: str, count: int, size: int) -> Table:
    import time

    from rocketline.admin.cluster import PRODUCER_GROUP
    from rocketline.client import Producer
    from rocketline.errors import RocketlineError
    from rocketline.message import Message

    table = Table(("broker", "queue", "stored", "ms", "problem"))
    async with Producer(admin.namesrv, group=PRODUCER_GROUP, retries=0, options=admin.client_options) as producer:
        for _ in range(count):
            started = time.monotonic()
            try:
                receipt = await producer.send(Message(topic, b"a" * size))
                row: tuple[Any, ...] = (receipt.queue.broker_name, receipt.queue.queue_id, True)
                problem = ""
            except RocketlineError as error:
                row, problem = ("", None, False), str(error)
            table.rows.append((*row, (time.monotonic() - started) * 1000, problem))
    times = [row[3] for row in table.rows if row[2]] or [0.0]
    table.about = f"mean {sum(times) / len(times):.2f} ms, worst {max(times):.2f} ms"
    return table
