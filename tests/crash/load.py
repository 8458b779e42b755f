"""Producers and consumers that keep a broker busy until it dies, and note in the ledger what came of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Self
from zlib import crc32

from tests.support.patience import PATIENCE_S

from rocketline.errors import BrokerError, QueryNotFound, TransportError
from rocketline.protocol.codes import ResponseCode

from .checker import judge
from .ledger import MAX_BODY_BYTES, Attempt, Ledger, Queue
from .wire import Wire, split

GROUP = "readers"
QUEUES: tuple[Queue, ...] = tuple((topic, queue_id) for topic in ("orders", "events", "audit") for queue_id in range(4))
READ_QUEUES = 4
"""Queues that are read, with offsets committed, while they are written."""


@dataclass(frozen=True)
class Mix:
    """What producers send."""

    producers: int = 8
    batch_share: float = 0.4
    batch_messages: int = 12
    max_bytes: int = MAX_BODY_BYTES
    in_flight: tuple[int, ...] = (1, 1, 2, 4)
    queues: tuple[Queue, ...] = QUEUES


class Load:
    """The load of one life of a broker: an async context manager that ends when the broker is gone or by leaving."""

    def __init__(
        self,
        address: str,
        ledger: Ledger,
        seed: int,
        mix: Mix | None = None,
        patience_s: float = PATIENCE_S,
        most_acks: int = 1 << 40,
        tolerated: frozenset[int] = frozenset({int(ResponseCode.SUCCESS)}),
    ) -> None:
        """Everybody ends at an answer that is not tolerated, producers also after `most_acks` more acknowledgements."""
        self.codes: Counter[int] = Counter()
        """Answers to sends by code."""
        self.last_refusal = ""
        """Code and reason of the last send that was refused."""
        self._address = address
        self._ledger = ledger
        self._mix = mix or Mix()
        self._random = Random(seed)
        self._patience_s = patience_s
        self._tolerated = tolerated
        self._last_ack = ledger.ack_count + most_acks
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for producer in range(self._mix.producers):
            self._spawn(self._produce(producer, Random(self._random.random())))
        for queue in self._random.sample(self._mix.queues, min(READ_QUEUES, len(self._mix.queues))):
            self._spawn(self._consume(queue))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    @property
    def _is_refused(self) -> bool:
        return not self._tolerated.issuperset(self.codes)

    def _spawn(self, work: Awaitable[None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def producers_end(self) -> None:
        """Wait until every producer has met its end: the broker's death or a refusal."""
        await asyncio.wait(self._tasks[: self._mix.producers])

    async def _produce(self, producer: int, random: Random) -> None:
        """Send until the broker refuses or is gone."""
        async with Wire(self._address, self._patience_s) as wire:
            with suppress(TransportError):
                # Alone, so that the connection is there before sends go out in order.
                await self._sends(wire, producer, random, 1)
                while not self._is_refused and self._ledger.ack_count < self._last_ack:
                    await self._sends(wire, producer, random, random.choice(self._mix.in_flight))

    async def _sends(self, wire: Wire, producer: int, random: Random, count: int) -> None:
        sends = [wire.send(self._ledger, self._next_attempts(producer, random)) for _ in range(count)]
        answers = await asyncio.gather(*sends, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            self.codes[answer] += 1
        self.last_refusal = wire.last_refusal or self.last_refusal

    def _next_attempts(self, producer: int, random: Random) -> list[Attempt]:
        mix, ledger = self._mix, self._ledger
        if unsettled := ledger.unsettled[producer]:
            return [ledger.again(unsettled.pop(0))]
        queue = random.choice(mix.queues)
        if random.random() < mix.batch_share:
            count = random.randint(2, mix.batch_messages)
            sizes = [random.randint(128, 1024) for _ in range(count)]
        else:
            sizes = [int(2 ** random.uniform(7, mix.max_bytes.bit_length() - 1))]
        return [ledger.new_attempt(producer, queue, size, in_batch=len(sizes) > 1) for size in sizes]

    async def _consume(self, queue: Queue) -> None:
        async with Wire(self._address, self._patience_s) as wire:
            with suppress(TransportError):
                offset = await _start_offset(wire, queue)
                while not self._is_refused:
                    try:
                        answer = await wire.pull(queue, offset, GROUP, commit=offset, wait_ms=1000)
                    except BrokerError:
                        await asyncio.sleep(0.002)  # the topic is not there before its first message
                        continue
                    for record in split(answer.body):
                        self._ledger.note_read(queue, judge(self._ledger, queue, record), crc32(record))
                    offset = answer.next_offset


async def _start_offset(wire: Wire, queue: Queue) -> int:
    try:
        return await wire.committed(queue, GROUP)
    except QueryNotFound:
        return 0
