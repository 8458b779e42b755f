"""`rocketline consume`: shows messages of a topic as they arrive.

With `--group` it is a member of that group: messages are shared with the other members and progress is kept. Without it, it
only looks: every queue is read, nothing is committed, and no group is affected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rocketline.cli.access import ClusterAccess, cluster_access
from rocketline.cli.options import (
    AccessKey,
    CaFile,
    Insecure,
    NameServers,
    OutputOption,
    SecretKeyFile,
    TlsSwitch,
    Verbose,
)
from rocketline.cli.tables import Output
from rocketline.cli.usage import UsageProblem

if TYPE_CHECKING:
    from rocketline.client import PullConsumer, Sql
    from rocketline.message import MessageQueue, MessageView

LOOKING_GROUP = "rocketline_cli_tail"
POLL_S = 5.0
POLL_MESSAGES = 32
EARLIEST, LATEST = "earliest", "latest"

Start = int | str | datetime
"""Where to begin: a queue offset, EARLIEST, LATEST, or a time."""


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to read.")],
    namesrv: NameServers = None,
    group: Annotated[
        str | None, typer.Option(help="Read as a member of this group, and keep its progress.", show_default=False)
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Also messages stored before; means --from-offset earliest.")
    ] = False,
    from_offset: Annotated[
        str | None,
        typer.Option(metavar="N|earliest|latest", show_default="latest", help="Where to begin in every queue."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|DURATION", show_default=False, help="Begin there: 2026-05-31T12:00:00, ms, or 10m ago."
        ),
    ] = None,
    tag: Annotated[str, typer.Option(metavar="EXPR", help="Tags wanted: `a || b`, `*` for all.")] = "*",
    sql: Annotated[
        str | None, typer.Option(metavar="EXPR", show_default=False, help='SQL92 over properties: "amount > 10".')
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after this many.", show_default=False)] = None,
    template: Annotated[
        str | None,
        typer.Option("--format", metavar="TEMPLATE", show_default=False, help="Line of a message: '{offset} {body}'."),
    ] = None,
    output: OutputOption = Output.table,
    access_key: AccessKey = None,
    secret_key_file: SecretKeyFile = None,
    tls: TlsSwitch = False,
    ca_file: CaFile = None,
    insecure: Insecure = False,
    verbose: Verbose = 0,
) -> None:
    """Show messages until Ctrl-C. With -o json: one JSON object per line."""
    from rocketline.cli.explain import diagnosed
    from rocketline.cli.logs import LoggingOptions, log_to_stderr
    from rocketline.cli.servers.serving import run, stop_at_closed_output

    log_to_stderr(LoggingOptions(verbose))
    start = _start(from_beginning, from_offset, since)
    if group is not None and isinstance(start, int):
        raise UsageProblem("--from-offset N reads without a group: use earliest, latest or --since with --group")
    wanted = _Wanted(topic, _expression(tag, sql), start, count, _shower(output, template))
    cluster = cluster_access(namesrv, access_key, secret_key_file, tls=tls, ca_file=ca_file, insecure=insecure)
    work = _look(cluster, wanted) if group is None else _join_group(cluster, group, wanted)
    with stop_at_closed_output():
        run(diagnosed(cluster, work))


def _start(from_beginning: bool, from_offset: str | None, since: str | None) -> Start:
    from rocketline.cli.times import flag_value, parse_since_ms

    if from_beginning + (from_offset is not None) + (since is not None) > 1:
        raise UsageProblem("--from-beginning, --from-offset and --since exclude each other: give one")
    since_ms = flag_value("--since", parse_since_ms, since)
    if since_ms is not None:
        return datetime.fromtimestamp(since_ms / 1000, UTC)
    if from_beginning:
        return EARLIEST
    if from_offset is None or from_offset in (EARLIEST, LATEST):
        return from_offset or LATEST
    if not from_offset.isdecimal():
        raise UsageProblem(
            f"--from-offset {from_offset}: a queue offset such as 42, {EARLIEST} or {LATEST} is expected"
        )
    return int(from_offset)


def _expression(tag: str, sql: str | None) -> str | Sql:
    if sql is None:
        return tag
    if tag != "*":
        raise UsageProblem("--tag and --sql exclude each other; in SQL a tag is the property TAGS: \"TAGS = 'a'\"")
    from rocketline.client import Sql
    from rocketline.errors import InvalidExpression
    from rocketline.filtering.expression import sql_filter

    try:
        sql_filter(sql)
    except InvalidExpression as error:
        raise UsageProblem(f"--sql {sql!r}: {error}") from error
    return Sql(sql)


def _shower(output: Output, template: str | None) -> Callable[[MessageView], None]:
    from rocketline.cli.messages.text import MESSAGE_COLUMNS, message_line, message_record, message_template
    from rocketline.cli.tables import Stream
    from rocketline.errors import ConfigError

    if template is not None and output is not Output.table:
        raise UsageProblem(f"--format and --output {output} exclude each other: give one")
    try:
        line = message_line if template is None else message_template(template)
    except ConfigError as error:
        raise UsageProblem(f"--format: {error}") from error
    stream = Stream(output, MESSAGE_COLUMNS)
    return lambda message: stream.show(partial(message_record, message), partial(line, message))


@dataclass(frozen=True)
class _Wanted:
    """Which messages to show, and how."""

    topic: str
    expression: str | Sql
    start: Start
    count: int | None
    show: Callable[[MessageView], None]


async def _join_group(cluster: ClusterAccess, group: str, wanted: _Wanted) -> None:
    from rocketline.client import ClientOptions, ConsumeFrom, PullConsumer, PushConsumer

    namesrv, options = cluster.namesrv, ClientOptions(**cluster.access)
    async with PullConsumer(namesrv, group=LOOKING_GROUP, options=options) as looking:
        await looking.queues(wanted.topic)  # fails for an unknown topic, for which a member would wait
    known = {EARLIEST: ConsumeFrom.FIRST, LATEST: ConsumeFrom.LAST}
    start = wanted.start if isinstance(wanted.start, datetime) else known[str(wanted.start)]
    async with PushConsumer(namesrv, group=group, from_where=start, options=options) as consumer:
        stream = consumer.messages(wanted.topic, wanted.expression)
        await consumer.start()
        _tell(f"reading {wanted.topic} as a member of group {group}")
        seen = 0
        async for message in stream:
            wanted.show(message)
            seen += 1
            if seen == wanted.count:
                # The loop acknowledges the last message when it asks for the next one; a closed stream then ends it.
                stream.close()


async def _look(cluster: ClusterAccess, wanted: _Wanted) -> None:
    from rocketline.client import ClientOptions, PullConsumer

    options = ClientOptions(**cluster.access)
    async with PullConsumer(cluster.namesrv, group=LOOKING_GROUP, auto_commit=False, options=options) as consumer:
        queues = await consumer.queues(wanted.topic)
        consumer.assign(queues, wanted.expression)
        for queue in queues:
            await consumer.seek(queue, await _offset(consumer, queue, wanted.start))
        _tell(f"reading {len(queues)} queues of {wanted.topic}")
        left = wanted.count
        while left is None or left:
            messages = await consumer.poll(POLL_MESSAGES if left is None else min(left, POLL_MESSAGES), POLL_S)
            for message in messages:
                wanted.show(message)
            if left is not None:
                left -= len(messages)


async def _offset(consumer: PullConsumer, queue: MessageQueue, start: Start) -> int:
    if isinstance(start, datetime):
        return await consumer.offset_at(queue, start)
    if isinstance(start, int):
        return max(await consumer.begin_offset(queue), min(start, await consumer.end_offset(queue)))
    return await (consumer.begin_offset(queue) if start == EARLIEST else consumer.end_offset(queue))


def _tell(text: str) -> None:
    """Say on standard error that reading has begun: for a person who waits, or a script."""
    print(f"{text}, Ctrl-C ends", file=sys.stderr, flush=True)
