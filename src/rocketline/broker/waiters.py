"""Held pulls: a long poll waits here until a message it wants arrives, or its time is up.

Theory of operation: a pull that finds nothing is parked under its (topic, queue). The dispatcher reports every message
it makes readable; a waiter whose filter passes is marked, and once the whole dispatch is done every marked waiter
reads again, so that one answer carries all that arrived and not just the first message; answers to one connection leave
together. A waiter is answered exactly once: by arrival, by its time, or not at all when its connection went away. When a
message arrives that it does not want, its time is up after 5 s at the latest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from rocketline.message import QueueOffset
from rocketline.protocol.command import Command
from rocketline.protocol.records import Buffer, LogEntry
from rocketline.transport import Channel

log = logging.getLogger(__name__)

AcceptTags = Callable[[int], bool]
AcceptProperties = Callable[[Mapping[str, str]], bool]


PASSED_OVER_S = 5.0
"""Longest wait behind a message that did not match: the progress of a group with a filter must not stand still."""

Answers = dict[Channel, list[Buffer]]
"""What is to be written to whom."""


class Waiter(Protocol):
    """Somebody who waits for messages of one queue."""

    key: tuple[str, int]
    queue_offset: int
    accept_tags: AcceptTags | None
    accept_properties: AcceptProperties | None
    expiry: asyncio.TimerHandle | None
    marked: bool

    def done(self) -> bool:
        """Whether it was answered, or does not wait any more."""

    def answer(self, answers: Answers) -> None:
        """Read again and answer, in whatever way, or add to the answers what is to be written."""


class PullWaiter(asyncio.Future[Command]):
    """One held pull; its result is the answer."""

    def __init__(
        self,
        key: tuple[str, int],
        queue_offset: QueueOffset,
        accept_tags: AcceptTags | None,
        read_again: Callable[[], Command],
        accept_properties: AcceptProperties | None = None,
    ) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.key = key
        self.queue_offset: int = queue_offset
        self.accept_tags = accept_tags
        self.accept_properties = accept_properties
        self.read_again = read_again
        self.expiry: asyncio.TimerHandle | None = None
        self.marked = False

    def answer(self, answers: Answers) -> None:
        try:
            self.set_result(self.read_again())
        except Exception as error:
            self.set_exception(error)


def _wants(waiter: Waiter, entry: LogEntry) -> bool:
    if waiter.accept_tags is not None and not waiter.accept_tags(entry.tags_code):
        return False
    return waiter.accept_properties is None or waiter.accept_properties(entry.properties)


class PullWaiters:
    """All held pulls of a broker."""

    def __init__(self, max_held: int = 100_000) -> None:
        self._max_held = max_held
        self._held: dict[tuple[str, int], list[Waiter]] = {}
        self._count = 0
        self._woken: list[Waiter] = []

    def __len__(self) -> int:
        return self._count

    def hold(
        self,
        topic: str,
        queue_id: int,
        queue_offset: QueueOffset,
        timeout_s: float,
        accept_tags: AcceptTags | None,
        read_again: Callable[[], Command],
        accept_properties: AcceptProperties | None = None,
    ) -> PullWaiter | None:
        """Park a pull; None when too many are parked already (the caller then answers at once)."""
        if self.is_full:
            return None
        waiter = PullWaiter((topic, queue_id), queue_offset, accept_tags, read_again, accept_properties)
        waiter.add_done_callback(self._dropped)
        self.park(waiter, timeout_s)
        return waiter

    @property
    def is_full(self) -> bool:
        return self._count >= self._max_held

    def park(self, waiter: Waiter, timeout_s: float) -> None:
        """Answer somebody when a message arrives, or after this long."""
        waiter.expiry = asyncio.get_running_loop().call_later(timeout_s, self._answer, [waiter])
        self._held.setdefault(waiter.key, []).append(waiter)
        self._count += 1

    def on_arrivals(self, entries: Iterable[LogEntry]) -> None:
        """Messages became readable: mark those who wait for one of them."""
        held = self._held
        if not held:
            return
        for entry in entries:
            for waiter in held.get((entry.topic, entry.queue_id), ()):
                if waiter.marked or entry.queue_offset < waiter.queue_offset:
                    continue
                if _wants(waiter, entry):
                    waiter.marked = True
                    self._woken.append(waiter)
                else:
                    self._answer_soon(waiter)

    def _answer_soon(self, waiter: Waiter) -> None:
        """A message arrived that somebody does not want: let it read behind that one before long."""
        loop = asyncio.get_running_loop()
        at = loop.time() + PASSED_OVER_S
        if waiter.expiry is not None and waiter.expiry.when() > at:
            waiter.expiry.cancel()
            waiter.expiry = loop.call_at(at, self._answer, [waiter])

    def answer_woken(self) -> None:
        """Answer everyone marked; called once after each dispatch."""
        if not self._woken:
            return
        woken, self._woken = self._woken, []
        self._answer(woken)

    def answer_queue(self, topic: str, queue_id: int) -> None:
        """Answer those who wait at one queue: something else than a message changed there."""
        self._answer(list(self._held.get((topic, queue_id), ())))

    def answer_all(self) -> None:
        """Answer everyone now: a topic went away."""
        self._answer([waiter for waiters in self._held.values() for waiter in waiters])

    def close(self) -> None:
        """Answer everyone and hold nobody any more: a client that asks again at once must not delay the stop."""
        self._max_held = 0
        self.answer_all()

    def _answer(self, waiters: list[Waiter]) -> None:
        answers: Answers = {}
        for waiter in waiters:
            if waiter.done():
                continue
            try:
                waiter.answer(answers)
            except Exception:  # our mistake, and no reason to leave the others waiting
                log.exception("a held pull of %s, queue %d, cannot be answered", *waiter.key)
            self.forget(waiter)
        for channel, buffers in answers.items():
            channel.write_all(buffers)

    def _dropped(self, waiter: asyncio.Future[Command]) -> None:
        assert isinstance(waiter, PullWaiter)
        if waiter.cancelled():
            self.forget(waiter)

    def forget(self, waiter: Waiter) -> None:
        """Somebody does not wait any more."""
        if waiter.expiry is not None:
            waiter.expiry.cancel()
        waiters = self._held.get(waiter.key)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            self._count -= 1
            if not waiters:
                del self._held[waiter.key]
