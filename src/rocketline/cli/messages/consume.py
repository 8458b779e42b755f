"""`rocketline consume`: messages of a topic as they come.

With a group it is a member of that group: messages are shared with the other members and progress is kept. Without one
it only looks: every queue is read, nothing is committed, nobody is disturbed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketline.cli.options import (
    DEFAULT_NAMESRV,
    AccessKey,
    CaFile,
    Insecure,
    NameServers,
    Output,
    SecretKeyFile,
    TlsSwitch,
    Verbose,
    given_access,
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
        bool, typer.Option("--from-beginning", help="Also what is stored already (a new group, or no group).")
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
    from rocketline.cli.logs import log_to_stderr
    from rocketline.cli.messages.text import message_json, message_line
    from rocketline.cli.servers.serving import reader_may_leave, run

    log_to_stderr(verbose)
    shown = message_json if output is Output.json else message_line
    access = given_access(access_key, secret_key_file, tls, ca_file, insecure)
    with reader_may_leave():
        if group is None:
            run(_look(namesrv, access, topic, tag, from_beginning, count, shown))
        else:
            run(_take_part(namesrv, access, topic, tag, group, from_beginning, count, shown))


async def _take_part(
    namesrv: str,
    access: dict[str, Any],
    topic: str,
    expression: str,
    group: str,
    from_beginning: bool,
    count: int | None,
    shown: Callable[[MessageView], str],
) -> None:
    from rocketline.client import ClientOptions, ConsumeFrom, PullConsumer, PushConsumer

    async with PullConsumer(namesrv, group=LOOKING_GROUP, options=ClientOptions(**access)) as looking:
        await looking.queues(topic)  # a member would wait for an unknown topic to appear; a person wants to be told
    start = ConsumeFrom.FIRST if from_beginning else ConsumeFrom.LAST
    async with PushConsumer(namesrv, group=group, from_where=start, options=ClientOptions(**access)) as consumer:
        stream = consumer.messages(topic, expression)
        await consumer.start()
        _tell(f"reading {topic} as a member of group {group}")
        seen = 0
        async for message in stream:
            print(shown(message), flush=True)
            seen += 1
            if seen == count:
                # The last message is acknowledged by asking for another, which a closed stream does not have.
                stream.close()


async def _look(
    namesrv: str,
    access: dict[str, Any],
    topic: str,
    expression: str,
    from_beginning: bool,
    count: int | None,
    shown: Callable[[MessageView], str],
) -> None:
    from rocketline.client import ClientOptions, PullConsumer

    async with PullConsumer(
        namesrv, group=LOOKING_GROUP, auto_commit=False, options=ClientOptions(**access)
    ) as consumer:
        queues = await consumer.queues(topic)
        consumer.assign(queues, expression)
        for queue in queues:
            start = consumer.begin_offset if from_beginning else consumer.end_offset
            await consumer.seek(queue, await start(queue))
        _tell(f"reading {len(queues)} queues of {topic}")
        left = count
        while left is None or left:
            messages = await consumer.poll(POLL_MESSAGES if left is None else min(left, POLL_MESSAGES), POLL_S)
            for message in messages:
                print(shown(message), flush=True)
            if left is not None:
                left -= len(messages)


def _tell(text: str) -> None:
    """Beside the messages: for the person who waits, and the script that wants to know when reading has begun."""
    print(f"{text}, Ctrl-C ends", file=sys.stderr, flush=True)
