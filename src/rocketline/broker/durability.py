"""Turns the store's report "flushed up to this offset" into something a send can wait for.

The store flushes in a thread of its own and knows no event loop. It reports each finished flush here; on the loop, all
waiters for a log offset at or below the flushed one are then released. One flush releases many sends: that is the group
commit. A waiting send costs a future and a queue entry, no task; sends of the fast path that are stored together share one
entry.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial

from rocketline.errors import StoreError


class Durable(Enum):
    YES = "flushed"
    TIMED_OUT = "not flushed in time"


Outcome = Durable | StoreError
Settle = Callable[[Outcome], None]


class _Waiting:
    """A waiter that is told once what became of everything below an offset."""

    __slots__ = ("_settle", "expiry", "next_log_offset")

    def __init__(self, next_log_offset: int, settle: Settle) -> None:
        self.next_log_offset = next_log_offset
        self.expiry: asyncio.TimerHandle | None = None
        self._settle: Settle | None = settle

    def end(self, outcome: Outcome) -> None:
        settle, self._settle = self._settle, None
        if self.expiry is not None:
            self.expiry.cancel()
        if settle is not None:
            settle(outcome)


class Durability:
    """Sends waiting for the disk, in log order."""

    def __init__(self, timeout_s: float, on_flush: Callable[[], None]) -> None:
        self._timeout_s = timeout_s
        self._on_flush = on_flush
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._flushed = 0

    def flushed_from_thread(self, next_log_offset: int) -> None:
        """The flusher's report; any thread."""
        self._call(self._flushed_to, next_log_offset)

    def committed_from_thread(self, next_log_offset: int) -> None:
        """The committer's report: readable now, if not yet on disk; any thread."""
        self._call(self._committed_to, next_log_offset)

    def failed_from_thread(self, error: StoreError) -> None:
        """The flusher gave up; any thread."""
        self._call(self._fail, error)

    def wait(self, next_log_offset: int) -> asyncio.Future[Durable]:
        """Done when everything below `next_log_offset` is on disk; offsets must be asked for in ascending order."""
        future: asyncio.Future[Durable] = self._loop.create_future()
        self.tell(next_log_offset, partial(_settle, future))
        return future

    def tell(self, next_log_offset: int, settle: Settle) -> None:
        """The same for several sends at once: `settle` is called once, with the outcome."""
        if next_log_offset <= self._flushed:
            settle(Durable.YES)
            return
        waiting = _Waiting(next_log_offset, settle)
        waiting.expiry = self._loop.call_later(self._timeout_s, waiting.end, Durable.TIMED_OUT)
        self._waiting.append(waiting)

    def _call(self, function: Callable[..., None], argument: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, argument)

    def _flushed_to(self, next_log_offset: int) -> None:
        self._flushed = max(self._flushed, next_log_offset)
        self._on_flush()
        waiting = self._waiting
        while waiting and waiting[0].next_log_offset <= self._flushed:
            waiting.popleft().end(Durable.YES)

    def _committed_to(self, next_log_offset: int) -> None:
        self._on_flush()

    def _fail(self, error: StoreError) -> None:
        while self._waiting:
            self._waiting.popleft().end(error)


def _settle(future: asyncio.Future[Durable], outcome: Outcome) -> None:
    if future.done():
        return
    if isinstance(outcome, StoreError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
