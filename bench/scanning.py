"""Measures what filters cost a broker: the rate at which pulls scan a queue of 1 KiB messages without a filter, and
with a TAG or SQL92 expression that selects one message in a hundred.

The rate is messages scanned (sent or left out) per second of the broker's CPU time. The three take turns, and ratios
are taken inside a round.
"""

from __future__ import annotations

import asyncio
import statistics
from typing import NamedTuple

from bench import machine, wire
from bench.generators import LoadFailed
from bench.sides import Side

from rocketline import Message, MessageQueue, Producer
from rocketline.client.remote_broker import PullStatus, RemoteBroker
from rocketline.message import ConsumerOffset, QueueOffset
from rocketline.protocol.headers import PullMessageHeader
from rocketline.protocol.headers.read import SUBSCRIPTION
from rocketline.transport import RemotingClient

TOPIC = "bench-scan"
BODY = b"x" * 1024
RARE = 100
PER_SEND = 32
IN_FLIGHT = 16
EXPRESSIONS = {
    "everything": ("TAG", "*"),
    "TAG": ("TAG", "rare"),
    "SQL92": ("SQL92", "region = 'eu' AND price BETWEEN 1000 AND 2000"),
}
BARS = {"TAG": 0.8, "SQL92": 0.3}


class Scanned(NamedTuple):
    """Rates by expression, one of each per round."""

    rates: dict[str, list[float]]

    def ratio(self, name: str) -> float:
        pairs = zip(self.rates[name], self.rates["everything"])
        return statistics.median(filtered / plain for filtered, plain in pairs)

    @property
    def missed(self) -> list[str]:
        return [name for name, bar in BARS.items() if self.ratio(name) < bar]

    def __str__(self) -> str:
        lines = []
        for name, rates in self.rates.items():
            bar = BARS.get(name)
            against = "" if bar is None else f"   {self.ratio(name):.2f}x of everything (bar: {bar}x)"
            lines.append(f"{name:<12} {statistics.median(rates):>12,.0f} messages per CPU second{against}")
        return "\n".join(lines)


async def measure(side: Side, count: int, rounds: int) -> Scanned:
    wire.create_topic(side.namesrv, side.broker, TOPIC, 1)
    queue = MessageQueue(TOPIC, side.broker_name, 0)
    await _fill(side.namesrv, queue, count)
    rates: dict[str, list[float]] = {name: [] for name in EXPRESSIONS}
    async with RemotingClient() as remoting:
        broker = RemoteBroker(remoting, side.broker, side.broker_name)
        for _ in range(rounds):
            for name in EXPRESSIONS:
                began = machine.cpu_seconds(side.pids())
                await _scan(broker, queue, count, name)
                rates[name].append(count / max(machine.cpu_seconds(side.pids()) - began, 1 / machine.TICKS_PER_SECOND))
    return Scanned(rates)


async def _fill(namesrv: str, queue: MessageQueue, count: int) -> None:
    def message(number: int) -> Message:
        is_rare = number % RARE == 0
        properties = {"region": "eu", "price": str(1500 if is_rare else number % 900)}
        return Message(TOPIC, BODY, tag="rare" if is_rare else "common", properties=properties)

    async with Producer(namesrv, group="bench_scan_fill") as producer:
        for start in range(0, count, PER_SEND * IN_FLIGHT):
            end = min(count, start + PER_SEND * IN_FLIGHT)
            batches = (range(first, min(end, first + PER_SEND)) for first in range(start, end, PER_SEND))
            await asyncio.gather(*(producer.send_batch(list(map(message, batch)), queue=queue) for batch in batches))


async def _scan(broker: RemoteBroker, queue: MessageQueue, count: int, name: str) -> None:
    """Pull the whole queue; raises when the answers are not as expected."""
    kind, expression = EXPRESSIONS[name]
    offset = size = 0
    while offset < count:
        header = PullMessageHeader(
            consumer_group=f"bench_scan_{name}",
            topic=TOPIC,
            queue_id=queue.queue_id,
            queue_offset=QueueOffset(offset),
            max_msg_nums=32,
            sys_flag=SUBSCRIPTION,
            commit_offset=ConsumerOffset(0),
            suspend_ms=0,
            sub_version=0,
            subscription=expression,
            expression_type=kind,
            broker_name=queue.broker_name,
        )
        answer = await broker.pull(header, 30.0)
        if answer.status not in (PullStatus.FOUND, PullStatus.NO_MATCH) or answer.next_offset <= offset:
            raise LoadFailed(f"{name} at {offset}: {answer.status.name}, next {answer.next_offset}")
        offset = answer.next_offset
        size += len(answer.body)
    wanted = count if name == "everything" else -(-count // RARE)
    if not wanted * len(BODY) < size < wanted * (len(BODY) + 400):
        raise LoadFailed(f"{name}: {size} bytes are not {wanted} messages")
