"""Held pulls: a long poll waits here until a message it wants arrives, or its time is up.

Theory of operation: a pull that finds nothing is parked under its (topic, queue). The dispatcher reports every message
it makes readable; a waiter whose filter passes is marked, and once the whole dispatch is done every marked waiter
reads again, so that one answer carries all that arrived and not just the first message. A waiter is answered exactly
once: by arrival, by its time, or not at all when its connection went away (its future is cancelled).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from rocketline.message import QueueOffset
from rocketline.protocol.command import Command
from rocketline.protocol.records import LogEntry

AcceptTags = Callable[[int], bool]
AcceptProperties = Callable[[Mapping[str, str]], bool]


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
        self.queue_offset = queue_offset
        self.accept_tags = accept_tags
        self.accept_properties = accept_properties
        self.read_again = read_again
        self.expiry: asyncio.TimerHandle | None = None
        self.marked = False


class PullWaiters:
    """All held pulls of a broker."""

    def __init__(self, max_held: int = 100_000) -> None:
        self._max_held = max_held
        self._held: dict[tuple[str, int], list[PullWaiter]] = {}
        self._count = 0
        self._woken: list[PullWaiter] = []

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
        if self._count >= self._max_held:
            return None
        waiter = PullWaiter((topic, queue_id), queue_offset, accept_tags, read_again, accept_properties)
        waiter.expiry = waiter.get_loop().call_later(timeout_s, self._answer, waiter)
        waiter.add_done_callback(self._dropped)
        self._held.setdefault(waiter.key, []).append(waiter)
        self._count += 1
        return waiter

    def on_arrivals(self, entries: Iterable[LogEntry]) -> None:
        """Messages became readable: mark those who wait for one of them."""
        held = self._held
        if not held:
            return
        for entry in entries:
            for waiter in held.get((entry.topic, entry.queue_id), ()):
                if waiter.marked or entry.queue_offset < waiter.queue_offset:
                    continue
                if waiter.accept_tags is not None and not waiter.accept_tags(entry.tags_code):
                    continue
                if waiter.accept_properties is None or waiter.accept_properties(entry.properties):
                    waiter.marked = True
                    self._woken.append(waiter)

    def answer_woken(self) -> None:
        """Answer everyone marked; called once after each dispatch."""
        if not self._woken:
            return
        woken, self._woken = self._woken, []
        for waiter in woken:
            self._answer(waiter)

    def answer_queue(self, topic: str, queue_id: int) -> None:
        """Answer those who wait at one queue: something else than a message changed there."""
        for waiter in list(self._held.get((topic, queue_id), ())):
            self._answer(waiter)

    def answer_all(self) -> None:
        """Answer everyone now: a topic went away."""
        for waiters in list(self._held.values()):
            for waiter in list(waiters):
                self._answer(waiter)

    def close(self) -> None:
        """Answer everyone and hold nobody any more: a client that asks again at once must not delay the stop."""
        self._max_held = 0
        self.answer_all()

    def _answer(self, waiter: PullWaiter) -> None:
        if waiter.done():
            return
        try:
            waiter.set_result(waiter.read_again())
        except Exception as error:
            waiter.set_exception(error)
        self._forget(waiter)

    def _dropped(self, waiter: asyncio.Future[Command]) -> None:
        assert isinstance(waiter, PullWaiter)
        if waiter.cancelled():
            self._forget(waiter)

    def _forget(self, waiter: PullWaiter) -> None:
        if waiter.expiry is not None:
            waiter.expiry.cancel()
        waiters = self._held.get(waiter.key)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            self._count -= 1
            if not waiters:
                del self._held[waiter.key]
