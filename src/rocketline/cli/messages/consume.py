"""`rocketline consume`: shows messages of a topic as they arrive.

With `--group` it is a member of that group: messages are shared with the other members and progress is kept. Without it, it
only looks: every queue is read, nothing is committed, and no group is affected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketline.cli.access import DEFAULT_NAMESRV, client_access
from rocketline.cli.options import (
    AccessKey,
    CaFile,
    Insecure,
    NameServers,
    Output,
    SecretKeyFile,
    TlsSwitch,
    Verbose,
)

if TYPE_CHECKING:
    from rocketline.message import MessageView

LOOKING_GROUP = "rocketline_cli_tail"
POLL_S = 5.0
POLL_MESSAGES = 32


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to read.")],
    namesrv: NameServers = DEFAULT_NAMESRV,
    group: Annotated[
        str | None, typer.Option(help="Read as a member of this group, and keep its progress.", show_default=False)
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Also messages stored before (a new group, or no group).")
    ] = False,
    tag: Annotated[str, typer.Option(metavar="EXPR", help="Tags wanted: `a || b`, `*` for all.")] = "*",
    count: Annotated[int | None, typer.Option(min=1, help="End after this many.", show_default=False)] = None,
    output: Annotated[Output, typer.Option(help="How messages are shown.")] = Output.text,
    access_key: AccessKey = None,
    secret_key_file: SecretKeyFile = None,
    tls: TlsSwitch = False,
    ca_file: CaFile = None,
    insecure: Insecure = False,
    verbose: Verbose = 0,
) -> None:
    """Show messages until Ctrl-C."""
    from rocketline.cli.logs import LoggingOptions, log_to_stderr
    from rocketline.cli.messages.text import message_json, message_line
    from rocketline.cli.servers.serving import run, stop_at_closed_output

    log_to_stderr(LoggingOptions(verbose))
    shown = message_json if output is Output.json else message_line
    access = client_access(access_key, secret_key_file, tls=tls, ca_file=ca_file, insecure=insecure)
    wanted = _Wanted(topic, tag, from_beginning, count, shown)
    with stop_at_closed_output():
        run(_look(namesrv, access, wanted) if group is None else _join_group(namesrv, access, group, wanted))


@dataclass(frozen=True)
class _Wanted:
    """Which messages to show, and how."""

    topic: str
    expression: str
    from_beginning: bool
    count: int | None
    shown: Callable[[MessageView], str]


async def _join_group(namesrv: str, access: dict[str, Any], group: str, wanted: _Wanted) -> None:
    from rocketline.client import ClientOptions, ConsumeFrom, PullConsumer, PushConsumer

    async with PullConsumer(namesrv, group=LOOKING_GROUP, options=ClientOptions(**access)) as looking:
        await looking.queues(wanted.topic)  # fails for an unknown topic, for which a member would wait
    start = ConsumeFrom.FIRST if wanted.from_beginning else ConsumeFrom.LAST
    async with PushConsumer(namesrv, group=group, from_where=start, options=ClientOptions(**access)) as consumer:
        stream = consumer.messages(wanted.topic, wanted.expression)
        await consumer.start()
        _tell(f"reading {wanted.topic} as a member of group {group}")
        seen = 0
        async for message in stream:
            print(wanted.shown(message), flush=True)
            seen += 1
            if seen == wanted.count:
                # The loop acknowledges the last message when it asks for the next one; a closed stream then ends it.
                stream.close()


async def _look(namesrv: str, access: dict[str, Any], wanted: _Wanted) -> None:
    from rocketline.client import ClientOptions, PullConsumer

    options = ClientOptions(**access)
    async with PullConsumer(namesrv, group=LOOKING_GROUP, auto_commit=False, options=options) as consumer:
        queues = await consumer.queues(wanted.topic)
        consumer.assign(queues, wanted.expression)
        for queue in queues:
            start = consumer.begin_offset if wanted.from_beginning else consumer.end_offset
            await consumer.seek(queue, await start(queue))
        _tell(f"reading {len(queues)} queues of {wanted.topic}")
        left = wanted.count
        while left is None or left:
            messages = await consumer.poll(POLL_MESSAGES if left is None else min(left, POLL_MESSAGES), POLL_S)
            for message in messages:
                print(wanted.shown(message), flush=True)
            if left is not None:
                left -= len(messages)


def _tell(text: str) -> None:
    """Say on standard error that reading has begun: for a person who waits, or a script."""
    print(f"{text}, Ctrl-C ends", file=sys.stderr, flush=True)
