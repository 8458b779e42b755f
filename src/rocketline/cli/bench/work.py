"""The measurements themselves. They use the public clients only, as any program would."""

from __future__ import annotations

import asyncio
import os
import struct
from asyncio import Semaphore, TaskGroup
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING

from rocketline.cli.bench.figures import BenchLimits, Figures

if TYPE_CHECKING:
    from rocketline.client import ClientOptions, Producer, PullConsumer

GROUP = "rocketline_bench"
POLL_MESSAGES = 256
POLL_S = 1.0
STRAGGLERS_S = 10.0
"""How long to wait for messages that are still on their way when all are sent."""
_STAMP = struct.Struct(">8sQ")
"""Which run, and the time of the send."""
LEAST_LATENCY_BYTES = _STAMP.size


@dataclass(frozen=True)
class Target:
    """The topic that is measured, and how to reach it."""

    namesrv: str
    options: ClientOptions
    topic: str
    figures: list[Figures] = field(default_factory=list)
    """What was measured; of a measurement that was stopped, so far."""

    def measure(self, what: str) -> Figures:
        """Begin to measure one kind of work."""
        self.figures.append(Figures(what))
        return self.figures[-1]


async def send(target: Target, limits: BenchLimits, size: int, in_flight: int) -> None:
    """Send messages of one size, so many at a time; the time of each is from the call to the acknowledgement."""
    from rocketline.client import Producer
    from rocketline.errors import RocketlineError
    from rocketline.message import Message

    message, window = Message(target.topic, b"x" * size), Semaphore(in_flight)

    async def send_one(producer: Producer) -> None:
        began = monotonic()
        try:
            await producer.send(message)
        except RocketlineError:
            figures.failed += 1
        else:
            figures.times.add(monotonic() - began)
            figures.messages += 1
            figures.bytes += size
        finally:
            window.release()

    async with Producer(target.namesrv, group=GROUP, options=target.options) as producer:
        await producer.send(message)  # fails now if nothing can be sent, and finds the route
        figures, sent = target.measure("send"), 0
        async with TaskGroup() as sends:
            while (limits.count is None or sent < limits.count) and not limits.reached(figures):
                await window.acquire()
                sends.create_task(send_one(producer))
                sent += 1
        figures.stop()


async def consume(target: Target, limits: BenchLimits) -> None:
    """Read the topic from its beginning and commit nothing; the time is that of one poll."""
    async with _reader(target) as consumer:
        queues = await consumer.queues(target.topic)
        consumer.assign(queues)
        ends = 0
        for queue in queues:
            begin = await consumer.begin_offset(queue)
            ends += await consumer.end_offset(queue) - begin
            await consumer.seek(queue, begin)
        # There is nothing to wait for beyond what the topic has now.
        wanted = BenchLimits(min(ends, limits.count or ends), limits.seconds)
        figures = target.measure("consume")
        while not wanted.reached(figures):
            began = monotonic()
            messages = await consumer.poll(POLL_MESSAGES, POLL_S)
            figures.times.add(monotonic() - began)
            figures.messages += len(messages)
            figures.bytes += sum(len(message.body) for message in messages)
        figures.stop()


async def latency(target: Target, limits: BenchLimits, size: int, rate: float) -> None:
    """Send at a steady rate and receive at the same time: from the call to the acknowledgement, and to the receiver."""
    from rocketline.client import Producer
    from rocketline.message import Message

    run = os.urandom(8)
    async with Producer(target.namesrv, group=GROUP, options=target.options) as producer:
        await producer.send(Message(target.topic, b"x" * size))  # makes the topic
        async with _reader(target) as consumer:
            queues = await consumer.queues(target.topic)
            consumer.assign(queues)
            for queue in queues:
                await consumer.seek(queue, await consumer.end_offset(queue))
            acknowledged, received = target.measure("send"), target.measure("send to receive")
            all_sent = asyncio.Event()

            def is_all_here() -> bool:
                return all_sent.is_set() and received.messages >= acknowledged.messages

            receiving = asyncio.create_task(_receive(consumer, run, received, is_all_here))
            try:
                while not limits.reached(acknowledged):
                    began = monotonic()
                    body = _STAMP.pack(run, monotonic_ns()).ljust(size, b"x")
                    await producer.send(Message(target.topic, body))
                    acknowledged.times.add(monotonic() - began)
                    acknowledged.messages += 1
                    acknowledged.bytes += size
                    await asyncio.sleep(max(0.0, began + 1 / rate - monotonic()))
                acknowledged.stop()
                all_sent.set()
                with suppress(TimeoutError):
                    await asyncio.wait_for(receiving, STRAGGLERS_S)
            finally:
                receiving.cancel()
                await asyncio.gather(receiving, return_exceptions=True)
    received.failed = acknowledged.messages - received.messages


async def _receive(consumer: PullConsumer, run: bytes, figures: Figures, is_all_here: Callable[[], bool]) -> None:
    while not is_all_here():
        for message in await consumer.poll(POLL_MESSAGES, POLL_S):
            if len(message.body) < _STAMP.size:
                continue
            of_run, sent_ns = _STAMP.unpack_from(message.body)
            if of_run == run:
                figures.times.add((monotonic_ns() - sent_ns) / 1e9)
                figures.messages += 1
                figures.bytes += len(message.body)
                figures.stop()


def _reader(target: Target) -> PullConsumer:
    from rocketline.client import PullConsumer

    return PullConsumer(target.namesrv, group=GROUP, auto_commit=False, options=target.options)
