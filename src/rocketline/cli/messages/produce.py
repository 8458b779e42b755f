"""`rocketline produce`: sends messages from the command line, or from standard input, one per line."""

from __future__ import annotations

import os
import sys
from asyncio import Semaphore, TaskGroup
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from rocketline.cli.access import ClusterAccess, cluster_access
from rocketline.cli.messages.text import RECEIPT_COLUMNS, receipt_line, receipt_record
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
from rocketline.cli.tables import Output, Stream
from rocketline.cli.usage import UsageProblem

if TYPE_CHECKING:
    from rocketline.client import Producer
    from rocketline.client.producer.receipts import SendReceipt
    from rocketline.message import Message

GROUP = "rocketline_cli"
IN_FLIGHT = 64


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the messages go; made when it does not exist.")],
    bodies: Annotated[
        list[str] | None, typer.Argument(metavar="BODY", help="Without any: one message per line of stdin.")
    ] = None,
    namesrv: NameServers = None,
    tag: Annotated[str | None, typer.Option(help="Tag of every message.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="Key to find the messages by; may be repeated.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated.")
    ] = None,
    ordering_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="All go to one queue, in order; others with this key too.")
    ] = None,
    delay: Annotated[str | None, typer.Option(metavar="DURATION", help="Deliver them later: 30s, 5m, 1h30m.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Send everything this many times.")] = 1,
    output: OutputOption = Output.table,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no receipts, only the total.")] = False,
    access_key: AccessKey = None,
    secret_key_file: SecretKeyFile = None,
    tls: TlsSwitch = False,
    ca_file: CaFile = None,
    insecure: Insecure = False,
    verbose: Verbose = 0,
) -> None:
    """Send messages and show where they were stored."""
    from rocketline.cli.explain import diagnosed
    from rocketline.cli.logs import LoggingOptions, log_to_stderr
    from rocketline.cli.servers.serving import run, stop_at_closed_output
    from rocketline.cli.times import flag_value, parse_duration_s
    from rocketline.message import Message

    log_to_stderr(LoggingOptions(verbose))
    delay_s = flag_value("--delay", parse_duration_s, delay)
    template = Message(
        topic,
        b"",
        tag=tag,
        keys=key or (),
        properties=_pairs(properties or ()),
        delay=timedelta(seconds=delay_s) if delay_s else None,
        sharding_key=ordering_key,
    )
    if bodies:
        source = _given(template, bodies, count)
    elif count > 1:
        raise UsageProblem("--count needs the messages on the command line")
    else:
        source = _typed(template)
    cluster = cluster_access(namesrv, access_key, secret_key_file, tls=tls, ca_file=ca_file, insecure=insecure)
    tally = _Tally(topic, None if quiet else Stream(output, RECEIPT_COLUMNS))
    in_flight = 1 if ordering_key is not None else IN_FLIGHT  # so that they are stored in this order
    with stop_at_closed_output():
        run(diagnosed(cluster, _send(cluster, source, tally, in_flight)))


@dataclass
class _Tally:
    """Counts and shows what was acknowledged."""

    topic: str
    shown: Stream | None
    count: int = 0
    started: float = field(default_factory=monotonic)

    def add(self, receipt: SendReceipt) -> None:
        self.count += 1
        if self.shown is not None:
            self.shown.show(partial(receipt_record, receipt), partial(receipt_line, receipt))

    def summary(self) -> str:
        seconds = monotonic() - self.started
        if self.count == 1:
            return f"sent 1 message to {self.topic}"
        rate = self.count / max(seconds, 1e-9)
        return f"sent {self.count:,} messages to {self.topic} in {seconds:.2f} s ({rate:,.0f}/s)"


async def _send(cluster: ClusterAccess, source: AsyncGenerator[Message, None], tally: _Tally, in_flight: int) -> None:
    from rocketline.client import ClientOptions, Producer

    window = Semaphore(in_flight)

    async def send_one(producer: Producer, message: Message) -> None:
        try:
            tally.add(await producer.send(message))
        finally:
            window.release()

    try:
        async with (
            Producer(cluster.namesrv, group=GROUP, options=ClientOptions(**cluster.access)) as producer,
            TaskGroup() as sends,
            aclosing(source) as messages,
        ):
            async for message in messages:
                await window.acquire()
                sends.create_task(send_one(producer, message))
    finally:
        if tally.count:
            print(tally.summary(), file=sys.stderr)


async def _given(template: Message, bodies: Sequence[str], count: int) -> AsyncGenerator[Message, None]:
    encoded = [os.fsencode(body) for body in bodies]
    for _ in range(count):
        for body in encoded:
            yield replace(template, body=body)


async def _typed(template: Message) -> AsyncGenerator[Message, None]:
    from rocketline.cli.messages.lines import lines_of
    from rocketline.client.producer.send_options import MAX_MESSAGE_BYTES

    if sys.stdin.isatty():
        print("one message per line, Ctrl-D ends:", file=sys.stderr)
    async for line in lines_of(sys.stdin.fileno(), MAX_MESSAGE_BYTES):
        if line:  # RocketMQ stores no empty bodies
            yield replace(template, body=line)


def _pairs(given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for item in given:
        name, separator, value = item.partition("=")
        if not separator or not name or not value:
            raise UsageProblem(f"--property {item}: NAME=VALUE is expected")
        pairs[name] = value
    return pairs
