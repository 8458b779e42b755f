"""Held pops and notifications: a request that finds nothing waits here, by topic, group and queue (or any queue, -1).

A message on the topic, or on one of the group's retry topics for it, lets the waiters of its keys try: the first one
reads again, and when it found something and there is more, the next one does. A waiter that finds nothing stays. So a
few messages wake a few waiters however many there are, and nobody is answered empty before its time. A waiter is
answered exactly once: by what it found, by its time, or not at all when its connection went away (its future is
cancelled).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from rocketline.broker.selection import EVERYTHING, Selection
from rocketline.protocol.command import Command
from rocketline.protocol.records import LogEntry

log = logging.getLogger(__name__)

WaitKey = tuple[str, str, int]
"""(topic, group, queue or -1)"""

ReadAgain = Callable[[], tuple[Command | None, bool]]
"""(answer, or None to go on waiting; whether somebody else may find something too)"""


class PopWaiter(asyncio.Future[Command]):
    """One held request; its result is the answer."""

    def __init__(
        self, key: WaitKey, selected: Selection, read_again: ReadAgain, give_up: Callable[[], Command]
    ) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.key = key
        self.selected = selected
        self.read_again = read_again
        self.give_up = give_up
        self.expiry: asyncio.TimerHandle | None = None


class PopWaiters:
    """All held requests of one kind."""

    def __init__(self, max_held: int = 100_000, max_per_key: int = 1024) -> None:
        self._max_held = max_held
        self._max_per_key = max_per_key
        self._held: dict[WaitKey, deque[PopWaiter]] = {}
        self._keys: dict[str, dict[WaitKey, int | None]] = {}
        """By topic: whose waiters want its messages, and of which queue (None: any)."""
        self._names: dict[WaitKey, tuple[str, ...]] = {}
        self._count = 0
        self._woken: dict[WaitKey, None] = {}
        self._alarms: dict[WaitKey, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return self._count

    def count(self, key: WaitKey) -> int:
        return len(self._held.get(key, ()))

    def hold(
        self,
        key: WaitKey,
        retry_topics: tuple[str, ...],
        timeout_s: float,
        read_again: ReadAgain,
        give_up: Callable[[], Command],
        selected: Selection = EVERYTHING,
    ) -> PopWaiter | None:
        """Park a request; None when too many are parked already."""
        held = self._held.get(key)
        if self._count >= self._max_held or (held is not None and len(held) >= self._max_per_key):
            return None
        waiter = PopWaiter(key, selected, read_again, give_up)
        waiter.expiry = waiter.get_loop().call_later(timeout_s, self._expire, waiter)
        waiter.add_done_callback(self._dropped)
        if held is None:
            self._held[key] = deque((waiter,))
            self._listen(key, retry_topics)
        else:
            held.append(waiter)
        self._count += 1
        return waiter

    def _listen(self, key: WaitKey, retry_topics: tuple[str, ...]) -> None:
        topic, _, queue_id = key
        self._names[key] = (topic, *retry_topics)
        self._keys.setdefault(topic, {})[key] = None if queue_id < 0 else queue_id
        for name in retry_topics:
            # Whichever queue is asked for, redeliveries are read from all of theirs.
            self._keys.setdefault(name, {})[key] = None

    def wake_later(self, key: WaitKey, delay_s: float) -> None:
        """Let the waiters of a key try after a time, too: a queue is free again then."""
        if key not in self._held:
            return
        loop = asyncio.get_running_loop()
        before = self._alarms.get(key)
        if before is not None:
            if before.when() <= loop.time() + delay_s:
                return
            before.cancel()
        self._alarms[key] = loop.call_later(delay_s, self._ring, key)

    def _ring(self, key: WaitKey) -> None:
        self._alarms.pop(key, None)
        self.wake(key)

    def wake_soon(self, key: WaitKey) -> None:
        """Let the waiters of a key try after the requests at hand."""
        if key in self._held:
            asyncio.get_running_loop().call_soon(self.wake, key)

    def on_arrivals(self, entries: Iterable[LogEntry]) -> None:
        """Messages became readable: note whose waiters are to try."""
        keys = self._keys
        if not keys:
            return
        for entry in entries:
            for key, queue_id in keys.get(entry.topic, {}).items():
                if key in self._woken or (queue_id is not None and queue_id != entry.queue_id):
                    continue
                if _wants(self._held[key][0].selected, entry):
                    self._woken[key] = None

    def answer_woken(self) -> None:
        """Let everyone try who has a reason to; called once after each dispatch."""
        if not self._woken:
            return
        woken, self._woken = self._woken, {}
        # Those who take any queue first, as Apache's broker does.
        for key in sorted(woken, key=lambda key: key[2] >= 0):
            self.wake(key)

    def wake(self, key: WaitKey) -> None:
        """Let the waiters of a key try, one after the other, as long as there is more."""
        held = self._held.get(key)
        while held:
            waiter = held[0]
            if waiter.done():
                # Its connection is gone, and what it popped would be in nobody's hands.
                self._forget(waiter)
                continue
            try:
                answer, has_more = waiter.read_again()
            except Exception as error:
                self._forget(waiter)
                waiter.set_exception(error)
                continue
            if answer is None:
                return
            self._forget(waiter)
            waiter.set_result(answer)
            if not has_more:
                return

    def wake_queue(self, topic: str, group: str, queue_id: int) -> None:
        """Something else than a message changed at a queue: whoever could read it may try."""
        for key in ((topic, group, -1), (topic, group, queue_id)):
            if key in self._held:
                self.wake(key)

    def answer_all(self) -> None:
        """Answer everyone now: a topic went away, or the broker stops."""
        for held in list(self._held.values()):
            for waiter in list(held):
                self._expire(waiter)

    def close(self) -> None:
        self._max_held = 0
        self.answer_all()

    def _expire(self, waiter: PopWaiter) -> None:
        if waiter.done():
            return
        self._forget(waiter)
        try:
            waiter.set_result(waiter.give_up())
        except Exception as error:
            waiter.set_exception(error)

    def _dropped(self, waiter: asyncio.Future[Command]) -> None:
        assert isinstance(waiter, PopWaiter)
        if waiter.cancelled():
            self._forget(waiter)

    def _forget(self, waiter: PopWaiter) -> None:
        if waiter.expiry is not None:
            waiter.expiry.cancel()
        key = waiter.key
        held = self._held.get(key)
        if held is None or waiter not in held:
            return
        held.remove(waiter)
        self._count -= 1
        if not held:
            del self._held[key]
            self._woken.pop(key, None)
            if (alarm := self._alarms.pop(key, None)) is not None:
                alarm.cancel()
            for name in self._names.pop(key):
                keys = self._keys[name]
                del keys[key]
                if not keys:
                    del self._keys[name]


def _wants(selected: Selection, entry: LogEntry) -> bool:
    if selected.accept_tags is not None and not selected.accept_tags(entry.tags_code):
        return False
    return selected.accept_properties is None or selected.accept_properties(entry.properties)
