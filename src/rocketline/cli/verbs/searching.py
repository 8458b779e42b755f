"""Verbs that look for messages: the newest first, as they arrive, and what traces say about one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from rocketline.cli.tables import Ms, Table, facts
from rocketline.cli.times import parse_duration_s
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.common import BEGIN, END, TOPIC
from rocketline.cli.verbs.messages import EXPRESSION, message_table

if TYPE_CHECKING:
    from rocketline.admin import Admin
    from rocketline.admin.search import Wanted
    from rocketline.admin.traces import Timeline
    from rocketline.message import MessageView

WHERE = Flag(
    "", "where", "SQL92 over properties, `size`, and members of a JSON body: amount > 100 AND body.region = 'eu'"
)
TEXT = Flag("", "text", "Text in the body, an id or a property, in upper or lower case.")
ONE_BROKER = Flag("a", "brokerName", "Only queues of this broker.")
ONE_QUEUE = Flag("i", "queueId", "Only queues with this number.", kind=int)
SILENT = {
    "both": "neither its producer nor a consumer wrote a trace",
    "producer": "its producer wrote no trace",
    "consumers": "no consumer wrote a trace",
}


def _wanted(args: Args) -> Wanted:
    from rocketline.admin.search import Wanted

    return Wanted(
        getattr(args, "begin_timestamp", None),
        getattr(args, "end_timestamp", None),
        args.sub_expression,
        args.where or "",
        args.text or "",
        args.broker_name,
        args.queue_id,
    )


@verb(
    "searchMsg",
    "Messages of a topic, the newest first, over all queues.",
    TOPIC,
    EXPRESSION,
    WHERE,
    TEXT,
    BEGIN,
    END,
    ONE_BROKER,
    ONE_QUEUE,
    Flag("", "max", "Messages shown at most; default 50.", kind=int, default=50),
    Flag("", "scan", "Messages looked at, at most; default 100000.", kind=int, default=100_000),
    Flag("", "cursor", "Go on where an earlier search ended."),
    aliases=("search", "newest"),
)
async def search_msg(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.search import Budget, newest

    page = await newest(admin, args.topic, _wanted(args), Budget(args.max, args.scan), args.cursor)
    admin.note(page.missing)
    table = message_table(page.messages)
    table.title = "messages"
    yield table
    pairs = [
        ("looked at", page.scanned),
        ("back to", Ms(page.reached_ms or 0)),
        ("older ones are left", page.next is not None),
    ]
    yield facts([*pairs, ("cursor", page.next)], "search")


@verb(
    "tailMsg",
    "Messages of a topic as they arrive; the progress of no group changes.",
    TOPIC,
    EXPRESSION,
    WHERE,
    TEXT,
    ONE_BROKER,
    ONE_QUEUE,
    Flag("", "max", "End after this many messages; default 10.", kind=int, default=10),
    Flag("", "wait", "End after this time; default 30s.", kind=parse_duration_s, default=30.0),
    Flag("", "position", "Go on where an earlier tail ended."),
    aliases=("tail",),
)
async def tail_msg(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.tail import Tail

    found: list[MessageView] = []
    dropped, position = 0, args.position
    deadline = time.monotonic() + args.wait
    async with Tail(admin, args.topic, _wanted(args), args.position) as tail:
        while len(found) < args.max and (left_s := deadline - time.monotonic()) > 0:
            batch = await tail.next_batch(args.max - len(found), idle_s=left_s)
            found += batch.messages
            dropped += batch.dropped
            position = batch.position
    table = message_table(found)
    table.title = "messages"
    yield table
    yield facts([("messages", len(found)), ("dropped", dropped), ("position", position)], "tail")


@verb(
    "queryMsgTraceById",
    "The trace of a message, if its clients wrote one.",
    Flag("i", "msgId", "Unique id.", required=True),
    Flag("t", "traceTopic", "Topic of the traces.", default="RMQ_SYS_TRACE_TOPIC"),
    BEGIN,
    END,
    Flag("c", "maxNum", "At most this many messages with traces; default 64.", kind=int, default=64),
    aliases=("trace",),
)
async def query_msg_trace_by_id(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.messages import FOREVER_MS
    from rocketline.admin.traces import trace_of

    end_ms = FOREVER_MS if args.end_timestamp is None else args.end_timestamp
    found = await trace_of(
        admin,
        args.msg_id,
        trace_topic=args.trace_topic,
        begin_ms=args.begin_timestamp or 0,
        end_ms=end_ms,
        most=args.max_num,
    )
    yield _trace_table(found)


def _trace_table(found: Timeline) -> Table:
    table = Table(("what", "group", "client", "time", "took ms", "success", "outcome", "retries", "detail"))
    for sent in found.sent:
        marks = (sent.took_ms, sent.ok, sent.kind, None, sent.store_host)
        table.rows.append(("sent", sent.group, sent.client, Ms(sent.began_ms), *marks))
    for item in found.attempts:
        outcome = (item.took_ms, item.ok, item.outcome, item.retries, None)
        table.rows.append(("handled", item.group, item.client, Ms(item.began_ms or 0), *outcome))
    for end in found.decided:
        kept = (end.group, end.store_host, Ms(end.timestamp_ms))
        table.rows.append(("decided", *kept, None, None, end.state.lower(), None, end.transaction_id))
    for recall in found.recalled:
        table.rows.append(
            ("recalled", recall.group, "", Ms(recall.timestamp_ms), None, recall.success, None, None, None)
        )
    table.rows.sort(key=lambda row: row[3])
    if found.silent_side:
        table.about = SILENT[found.silent_side]
    if found.limited:
        table.about += f"{'; ' if table.about else ''}there may be more records"
    return table
