"""Measures held long polls: their memory, and the cost of waking one while few or very many others wait.

Windows of ten messages, each for a queue of its own, are sent one after the other in three ways: without waiting pulls,
with a pull waiting at these ten queues only, and with one waiting at every queue. Everything else is equal, so the
differences in the broker's CPU time are the cost of the pulls.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from bench import machine, wire
from bench.generators import LoadFailed
from bench.sides import Side

from rocketline import Message, MessageQueue, Producer
from rocketline.message import ConsumerOffset, QueueOffset
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetMaxOffsetHeader, PullMessageHeader
from rocketline.protocol.headers.read import SUBSCRIPTION, SUSPEND
from rocketline.transport import RemotingClient

WINDOW = 10
PER_TOPIC = 1000
PER_CONNECTION = 100
SUSPEND_MS = 115_000
"""Longer than a run, shorter than the two minutes a broker holds a pull at most."""
OnWindow = Callable[[Sequence[MessageQueue]], Awaitable[None]]
FILES = {"mappedFileSizeConsumeQueue": 2000}


class Polled(NamedTuple):
    """The figures of one broker."""

    held: int
    bytes_per_poll: float
    send_us: float
    wake_few_us: float
    wake_many_us: float
    idle_percent: float

    def __str__(self) -> str:
        return (
            f"{self.held:,} polls held: {self.bytes_per_poll:,.0f} bytes each; with all of them waiting an idle broker "
            f"uses {self.idle_percent:.1f} % of a core\n"
            f"broker CPU per message: {self.send_us:.0f} us without a poll; the poll it wakes adds "
            f"{self.wake_few_us:.0f} us when {WINDOW} wait, {self.wake_many_us:.0f} us when {self.held:,} wait"
        )


class Polls:
    """Queues, and pulls that wait at them, spread over connections."""

    def __init__(self, side: Side, producer: Producer, queues: list[MessageQueue]) -> None:
        self._side = side
        self._producer = producer
        self.queues = queues
        self._next = dict.fromkeys(queues, 0)
        self._waiting: dict[MessageQueue, asyncio.Task[Command]] = {}
        self._connections: list[RemotingClient] = []

    async def open(self, stack: AsyncExitStack) -> None:
        for _ in range(0, len(self.queues), PER_CONNECTION):
            self._connections.append(await stack.enter_async_context(RemotingClient()))

    async def send(self, queues: Sequence[MessageQueue]) -> None:
        """Send one message to each queue; pulls that wait there return with it."""
        await asyncio.gather(*(self._producer.send(Message(queue.topic, b"x" * 100), queue=queue) for queue in queues))
        for queue in queues:
            self._next[queue] += 1
            if (waiting := self._waiting.pop(queue, None)) is not None:
                answer = await waiting
                if answer.code != 0:
                    raise LoadFailed(f"a pull held at {queue} came back with {answer.code}: {answer.remark}")

    async def hold(self, queues: Sequence[MessageQueue]) -> None:
        """Let a pull wait at each queue; they are held when this returns."""
        for queue in queues:
            self._waiting[queue] = asyncio.create_task(self._pull(queue))
        await self.round_trip(queues)

    async def round_trip(self, queues: Sequence[MessageQueue]) -> None:
        """Make another request on the connections of some queues: all earlier requests are then served."""
        await asyncio.sleep(0)
        connections = {id(self._connection(queue)): queue for queue in queues}
        await asyncio.gather(*map(self._ask, connections.values()))

    def _connection(self, queue: MessageQueue) -> RemotingClient:
        topic_number = int(queue.topic.rpartition("-")[2])
        return self._connections[(topic_number * PER_TOPIC + queue.queue_id) // PER_CONNECTION]

    async def _ask(self, queue: MessageQueue) -> None:
        header = GetMaxOffsetHeader(queue.topic, queue.queue_id, broker_name=queue.broker_name)
        command = Command(RequestCode.GET_MAX_OFFSET, header.encode())
        await self._connection(queue).call(self._side.broker, command, 60.0)

    async def _pull(self, queue: MessageQueue) -> Command:
        header = PullMessageHeader(
            consumer_group="bench_polls",
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=QueueOffset(self._next[queue]),
            max_msg_nums=32,
            sys_flag=SUSPEND | SUBSCRIPTION,
            commit_offset=ConsumerOffset(0),
            suspend_ms=SUSPEND_MS,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
            broker_name=queue.broker_name,
        )
        command = Command(RequestCode.PULL_MESSAGE, header.encode())
        return await self._connection(queue).call(self._side.broker, command, SUSPEND_MS / 1000 + 30)

    async def release_all(self) -> None:
        for start in range(0, len(self.queues), WINDOW):
            await self.send(self.queues[start : start + WINDOW])


async def measure(side: Side, held: int, pairs: int, idle_s: float) -> Polled:
    """`held` pulls against ten, `pairs` times; the medians of the processor times.

    Memory is that of the first time: later ones reuse it.
    """
    queues = [
        MessageQueue(f"bench-polls-{number // PER_TOPIC}", side.broker_name, number % PER_TOPIC)
        for number in range(held)
    ]
    for topic in sorted({queue.topic for queue in queues}):
        wire.create_topic(side.namesrv, side.broker, topic, min(held, PER_TOPIC))
    async with Producer(side.namesrv, group="bench_polls_sender") as producer, AsyncExitStack() as stack:
        polls = Polls(side, producer, queues)
        await polls.open(stack)
        await polls.release_all()  # creates the files of every queue and opens every connection
        await polls.round_trip(queues)
        found = [await _pair(side, polls, idle_s) for _ in range(pairs)]
    send, few, many, _, idle = map(statistics.median, zip(*found))
    return Polled(held, found[0][3], send, few - send, many - send, idle)


async def _pair(side: Side, polls: Polls, idle_s: float) -> tuple[float, float, float, float, float]:
    """CPU per message: without pulls, with ten, with all; bytes per pull; idle percent while all are held."""
    queues = polls.queues
    send = await _cpu_us(side, polls, before=polls.round_trip)
    few = await _cpu_us(side, polls, before=polls.hold)
    before = machine.memory(side.pids()).anonymous
    for start in range(0, len(queues), WINDOW):
        await polls.hold(queues[start : start + WINDOW])
    size = (machine.memory(side.pids()).anonymous - before) / len(queues)
    idle = await _idle_percent(side, idle_s)
    many = await _cpu_us(side, polls, after=polls.hold)
    await polls.release_all()
    return send, few, many, size, idle


async def _cpu_us(side: Side, polls: Polls, *, before: OnWindow | None = None, after: OnWindow | None = None) -> float:
    """Broker CPU per message, window after window; `before` and `after` are called with each window."""
    began = machine.cpu_seconds(side.pids())
    for start in range(0, len(polls.queues), WINDOW):
        window = polls.queues[start : start + WINDOW]
        if before is not None:
            await before(window)
        await polls.send(window)
        if after is not None:
            await after(window)
    return (machine.cpu_seconds(side.pids()) - began) / len(polls.queues) * 1e6


async def _idle_percent(side: Side, idle_s: float) -> float:
    began, cpu = time.monotonic(), machine.cpu_seconds(side.pids())
    await asyncio.sleep(idle_s)
    return (machine.cpu_seconds(side.pids()) - cpu) / (time.monotonic() - began) * 100
