"""Drains a backlog of our broker with our consumers and with Apache's client.

Every run uses a new group that reads the whole topic from its start, in a process of its own on the load core; the
first tenth is warm-up. A run that misses a message is not counted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing import get_context
from threading import Lock
from typing import NamedTuple

from bench import machine, wire
from bench.generators import JavaLoad, LoadFailed, RawLoad
from bench.sides import Side

from rocketline import ConsumeFrom, MessageView, PullConsumer, PushConsumer
from rocketline.client.consumer.push.handlers import HandlerFunction

TOPIC = "bench-drain"
QUEUES = 8
PER_SEND = 32
BODY_BYTES = 1024
LIMIT_S = 600.0
POLLED = 1000
READERS = ("push", "push, lists of 32", "push, threads", "pull", "java push", "java pull")


class Drained(NamedTuple):
    """One run: messages per second, and CPU time per message of reader and broker."""

    reader: str
    rate: float
    reader_cpu_us: float
    broker_cpu_us: float

    def __str__(self) -> str:
        return (
            f"{self.reader:<18} {self.rate:>10,.0f} msg/s   CPU per message: "
            f"reader {self.reader_cpu_us:5.1f} us, broker {self.broker_cpu_us:5.1f} us"
        )


class DrainCounter:
    """Counts distinct messages; `done` is set when all have arrived."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._skip = max(1, expected // 10)
        self._seen: dict[int, bytearray] = {}
        self._count = 0
        self.began = self.ended = self.began_cpu = self.ended_cpu = 0.0
        self.done = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._lock = Lock()

    def take_in_thread(self, message: MessageView) -> None:
        with self._lock:
            self.take_list((message,))

    async def take(self, message: MessageView) -> None:
        self.take_list((message,))

    async def take_batch(self, messages: Sequence[MessageView]) -> None:
        self.take_list(messages)

    def take_list(self, messages: Sequence[MessageView]) -> None:
        for message in messages:
            seen = self._seen.get(message.queue_id)
            if seen is None:
                seen = self._seen[message.queue_id] = bytearray(self._expected)
            if seen[message.queue_offset]:
                continue
            seen[message.queue_offset] = 1
            self._count += 1
            if self._count == self._skip:
                self.began, self.began_cpu = time.perf_counter(), time.process_time()
            if self._count == self._expected:
                self.ended, self.ended_cpu = time.perf_counter(), time.process_time()
                self._loop.call_soon_threadsafe(self.done.set)

    @property
    def figures(self) -> tuple[float, float]:
        """(messages per second, CPU microseconds per message) after the warm-up."""
        measured = self._expected - self._skip
        return measured / (self.ended - self.began), (self.ended_cpu - self.began_cpu) / measured * 1e6


def fill(side: Side, load: RawLoad, count: int) -> None:
    """A topic with `count` messages of 1 KiB in 8 queues."""
    wire.create_topic(side.namesrv, side.broker, TOPIC, QUEUES)
    load.run(
        side.broker, side.broker_name, LIMIT_S, topic=TOPIC, queues=QUEUES, connections=QUEUES, batch=PER_SEND,
        body=BODY_BYTES, count=count,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while (stored := wire.stored_messages(side.broker, TOPIC, QUEUES)) < count:
        if time.monotonic() > deadline:
            raise LoadFailed(f"only {stored} of {count} messages can be read")
        time.sleep(0.05)


def drain(side: Side, reader: str, run: int, count: int, java: JavaLoad | None, core: int) -> Drained:
    """One run of one reader."""
    group = f"bench_{reader.replace(', ', '_').replace(' ', '_')}_{run}"
    before = machine.cpu_seconds(side.pids())
    if reader.startswith("java"):
        assert java is not None
        rate, cpu_us = _with_java(java, reader.removeprefix("java "), side.namesrv, group, count)
    else:
        # In a new process, so that memory and threads of the harness have no effect.
        with get_context("spawn").Pool(1) as pool:
            rate, cpu_us = pool.apply(_with_ours, (reader, side.namesrv, group, count, core))
    broker_s = machine.cpu_seconds(side.pids()) - before
    return Drained(reader, rate, cpu_us, broker_s / count * 1e6)


def _with_java(java: JavaLoad, verb: str, namesrv: str, group: str, count: int) -> tuple[float, float]:
    result = java.run(
        verb, LIMIT_S, namesrv=namesrv, topic=TOPIC, group=group, threads=20, expected=count,
        skip=max(1, count // 10), timeout=LIMIT_S,
    )  # fmt: skip
    if result["errors"]:
        raise LoadFailed(f"the Java client missed {result['errors']} messages: {result['first_error']}")
    return result["rate"], result["load_cpu_s"] / count * 1e6


def _with_ours(reader: str, namesrv: str, group: str, count: int, core: int) -> tuple[float, float]:
    os.sched_setaffinity(0, {core})
    logging.getLogger("rocketline").setLevel(logging.ERROR)  # without the warnings about full buffers
    tally_of: Callable[[str, str, int], Awaitable[DrainCounter]] = _pulled if reader == "pull" else _pushed(reader)
    return asyncio.run(_within_limit(tally_of(namesrv, group, count))).figures


async def _within_limit(run: Awaitable[DrainCounter]) -> DrainCounter:
    async with asyncio.timeout(LIMIT_S):
        return await run


def _pushed(reader: str) -> Callable[[str, str, int], Awaitable[DrainCounter]]:
    async def run(namesrv: str, group: str, count: int) -> DrainCounter:
        tally = DrainCounter(count)
        batch = PER_SEND if "lists" in reader else 1
        handler: HandlerFunction = tally.take_batch if batch > 1 else tally.take
        if "threads" in reader:
            handler = tally.take_in_thread
        async with PushConsumer(namesrv, group=group, batch_size=batch, from_where=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe(TOPIC, "*", handler)
            await consumer.start()
            await tally.done.wait()
        return tally

    return run


async def _pulled(namesrv: str, group: str, count: int) -> DrainCounter:
    tally = DrainCounter(count)
    async with PullConsumer(namesrv, group=group, from_where=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe(TOPIC)
        while not tally.done.is_set():
            tally.take_list(await consumer.poll(POLLED))
    return tally
