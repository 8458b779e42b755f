"""Turns the store's "flushed up to here" into something a send can wait for.

The store flushes in a thread of its own and knows no event loop. It reports each finished flush here; everyone who
waits for a log offset at or below the flushed one is released on the loop. One flush releases many sends: that is the
group commit. The fast road costs a future and a queue entry per waiting send, no task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum

from rocketline.errors import StoreError


class Durable(Enum):
    YES = "flushed"
    TIMED_OUT = "not flushed in time"


class Durability:
    """Sends waiting for the disk, in log order."""

    def __init__(self, timeout_s: float, on_flush: Callable[[], None]) -> None:
        self._timeout_s = timeout_s
        self._on_flush = on_flush
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[int, asyncio.Future[Durable], asyncio.TimerHandle]] = deque()
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
        if next_log_offset <= self._flushed:
            future.set_result(Durable.YES)
            return future
        expiry = self._loop.call_later(self._timeout_s, _expire, future)
        self._waiting.append((next_log_offset, future, expiry))
        return future

    def _call(self, function: Callable[..., None], argument: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, argument)

    def _flushed_to(self, next_log_offset: int) -> None:
        self._flushed = max(self._flushed, next_log_offset)
        self._on_flush()
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._flushed:
            _, future, expiry = waiting.popleft()
            expiry.cancel()
            if not future.done():
                future.set_result(Durable.YES)

    def _committed_to(self, next_log_offset: int) -> None:
        self._on_flush()

    def _fail(self, error: StoreError) -> None:
        while self._waiting:
            _, future, expiry = self._waiting.popleft()
            expiry.cancel()
            if not future.done():
                future.set_exception(error)


def _expire(future: asyncio.Future[Durable]) -> None:
    if not future.done():
        future.set_result(Durable.TIMED_OUT)
