"""Producers and consumers of a group that may have two brokers who take themselves for the master.

Half of the producers go from broker to broker until one acknowledges, as clients do that ask for routes. The other half stay
with one broker each, whatever it answers and however long it takes: what an old master still acknowledges is seen by them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from random import Random
from typing import Self
from zlib import crc32

from tests.crash.checker import Checker, judge
from tests.crash.ledger import Attempt, Ledger, Queue
from tests.crash.wire import Wire, split
from tests.support.patience import PATIENCE_S

from rocketline.errors import BrokerError, QueryNotFound, TransportError

QUEUES: tuple[Queue, ...] = tuple((topic, queue_id) for topic in ("orders", "events") for queue_id in range(4))
READERS = "readers"
MOVING_PATIENCE_S = 1.5
PAUSE_S = 0.02
"""After an answer, so that a run is about moments and not about throughput."""
AFTER_REFUSAL_S = 0.05


REPEATS_S = 8.0
"""A group's offset may be lost with its master if it was committed so short before the last one: offsets are copied every
3 s, and an old master takes them for up to a lease. Held in virtual time and in soak runs only."""


class Progress:
    """R6: where a group goes on after a switch. Never past what it committed, and hardly before."""

    def __init__(self, repeats_s: float = inf) -> None:
        self._repeats_s = repeats_s
        self._asked: dict[Queue, int] = {}
        self._done: dict[Queue, list[tuple[float, int]]] = {}
        """Commits that were answered, with their times."""

    def asks(self, queue: Queue, offset: int) -> None:
        self._asked[queue] = max(offset, self._asked.get(queue, 0))

    def committed(self, queue: Queue, offset: int, at: float) -> None:
        self._done.setdefault(queue, []).append((at, offset))

    def gone_on(self, queue: Queue, offset: int) -> None:
        """From here on: what was committed beyond is lost, and is not lost again by the next switch."""
        self._done[queue] = [(at, found) for at, found in self._done.get(queue, ()) if found <= offset]

    def goes_on(self, queue: Queue, offset: int) -> Iterable[str]:
        """A broker that gives out messages says where the group is."""
        if offset > self._asked.get(queue, 0):
            yield f"R6: the group is at {offset} of {queue}, and has committed {self._asked.get(queue, 0)}"
        done = self._done.get(queue, ())
        last = max((at for at, _ in done), default=0.0)
        kept = max((found for at, found in done if at <= last - self._repeats_s), default=0)
        if offset < kept:
            yield f"R6: the group is at {offset} of {queue}, and was at {kept} {self._repeats_s:g} s before its last commit"


@dataclass
class Ack:
    at: float
    address: str
    log_offset: int


@dataclass
class GroupLedger(Ledger):
    acks: list[Ack] = field(default_factory=list)
    """Who acknowledged what, in order of time."""
    codes: Counter[int] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    progress: Progress = field(default_factory=Progress)


class GroupChecker(Checker):
    """A send that was given up may still arrive, after later ones: only what was acknowledged has an order."""

    def _check_order(self, queue: Queue, attempts: list[Attempt]) -> None:
        super()._check_order(queue, [attempt for attempt in attempts if attempt.queue_offset >= 0])


class GroupLoad:
    """An async context manager; `addresses` are the brokers', as clients reach them."""

    def __init__(
        self, addresses: Sequence[str], ledger: GroupLedger, seed: int, producers: int = 4, pause_s: float = PAUSE_S
    ) -> None:
        """`pause_s` is how long everybody waits after an answer, on average."""
        self._pause_s = pause_s
        self._after_refusal_s = max(AFTER_REFUSAL_S, pause_s)
        self._addresses = list(addresses)
        self._ledger = ledger
        self._random = Random(seed)
        self._producers = producers
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False
        self._may_send = asyncio.Event()
        self._may_send.set()

    async def __aenter__(self) -> Self:
        base = len(self._ledger.attempts)
        for number in range(self._producers):
            chance = Random(self._random.random())
            self._start(self._move(base + number, chance))
        for number, address in enumerate(self._addresses):
            self._start(self._stay(base + self._producers + number, address, Random(self._random.random())))
            self._start(self._consume(QUEUES[number % len(QUEUES)], address))
        self._start(self._consume_moving(QUEUES[-1]))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let everybody finish what is on the way; who is not answered is left."""
        self._is_over = True
        self.resume()
        finished = await asyncio.wait(self._tasks, timeout=4.0)
        for task in finished[1]:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    def _start(self, work: Awaitable[None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def acknowledged_after(self, moment: float, count: int = 1) -> float:
        """Wait for acknowledgements after a moment; when the last of them came."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                later = [ack.at for ack in self._ledger.acks[-5000:] if ack.at > moment]
                if len(later) >= count:
                    return later[count - 1]
                await asyncio.sleep(0.01)

    def longest_pause_since(self, moment: float) -> float:
        """The longest time without an acknowledgement."""
        moments = [moment, *(ack.at for ack in self._ledger.acks if ack.at > moment)]
        return max(later - earlier for earlier, later in pairwise(moments))

    def pause(self) -> None:
        """Send nothing from now on; what is on the way is not called back."""
        self._may_send.clear()

    def resume(self) -> None:
        self._may_send.set()

    async def _move(self, producer: int, random: Random) -> None:
        place = random.randrange(len(self._addresses))
        while not self._is_over:
            address = self._addresses[place]
            async with Wire(address, MOVING_PATIENCE_S) as wire:
                with suppress(TransportError):
                    while not self._is_over and await self._send(wire, address, producer, random):
                        await asyncio.sleep(random.uniform(0, 2 * self._pause_s))
            place = (place + 1) % len(self._addresses)
            await asyncio.sleep(self._after_refusal_s)

    async def _stay(self, producer: int, address: str, random: Random) -> None:
        while not self._is_over:
            async with Wire(address, PATIENCE_S) as wire:
                with suppress(TransportError):
                    while not self._is_over:
                        is_taken = await self._send(wire, address, producer, random)
                        await asyncio.sleep(self._pause_s if is_taken else self._after_refusal_s)
            await asyncio.sleep(self._after_refusal_s)

    async def _send(self, wire: Wire, address: str, producer: int, random: Random) -> bool:
        ledger = self._ledger
        await self._may_send.wait()
        attempts = self._next_attempts(producer, random)
        code = await wire.send(ledger, attempts)
        ledger.codes[code] += 1
        if code:
            ledger.refusals[wire.last_refusal] += 1
            return False
        now = asyncio.get_running_loop().time()
        ledger.acks += [Ack(now, address, attempt.log_offset) for attempt in attempts]
        return True

    def _next_attempts(self, producer: int, random: Random) -> list[Attempt]:
        ledger = self._ledger
        if unsettled := ledger.unsettled[producer]:
            return [ledger.again(unsettled.pop(0))]
        queue = random.choice(QUEUES)
        if random.random() < 0.3:
            sizes = [random.randint(128, 512) for _ in range(random.randint(2, 6))]
        else:
            sizes = [int(2 ** random.uniform(7, 12))]
        return [ledger.new_attempt(producer, queue, size, in_batch=len(sizes) > 1) for size in sizes]

    async def _consume(self, queue: Queue, address: str) -> None:
        while not self._is_over:
            async with Wire(address, MOVING_PATIENCE_S) as wire:
                with suppress(TransportError):
                    await self._read_on(wire, queue)
            await asyncio.sleep(self._after_refusal_s)

    async def _consume_moving(self, queue: Queue) -> None:
        for place in range(1 << 30):
            if self._is_over:
                return
            async with Wire(self._addresses[place % len(self._addresses)], MOVING_PATIENCE_S) as wire:
                with suppress(TransportError):
                    await self._read_on(wire, queue)
            await asyncio.sleep(self._after_refusal_s)

    async def _read_on(self, wire: Wire, queue: Queue) -> None:
        """Read and commit until the broker refuses or is gone."""
        try:
            offset = await wire.committed(queue, READERS)
        except QueryNotFound:
            offset = 0
        except BrokerError:
            await asyncio.sleep(max(0.2, self._pause_s))
            return
        progress, is_resumed = self._ledger.progress, False
        problems = list(progress.goes_on(queue, offset))  # counts if this broker gives messages out
        while not self._is_over:
            progress.asks(queue, offset)
            try:
                answer = await wire.pull(queue, offset, READERS, commit=offset, wait_ms=500)
            except BrokerError:
                await asyncio.sleep(max(0.2, self._pause_s))  # not the master, or there is no such topic yet
                return
            if not is_resumed:
                is_resumed = True
                self._ledger.problems += problems
                progress.gone_on(queue, offset)
            progress.committed(queue, offset, asyncio.get_running_loop().time())
            for record in split(answer.body):
                self._ledger.note_read(queue, judge(self._ledger, queue, record), crc32(record))
            if answer.next_offset == offset:
                await asyncio.sleep(max(0.05, self._pause_s))
            offset = answer.next_offset
