"""Turns "on disk up to this offset" and "on replicas up to this offset" into something a send can wait for.

The store flushes in a thread of its own and knows no event loop. It reports each finished flush here; replication reports,
on the loop, how far the replicas are that count. All waiters for a log offset at or below both are then released: one wait
covers disk and replicas. One flush, or one report, releases many sends: that is the group commit. A waiting send costs a
future and a queue entry, no task; sends of the fast path that are stored together share one entry.
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
    NOT_REPLICATED = "not on enough replicas in time"


FAR = (1 << 63) - 1
"""Behind every log offset: nothing has to be waited for."""


_SOON_S = 0.001
"""Timers may come a little early."""

Outcome = Durable | StoreError
Settle = Callable[[Outcome], None]


class _Waiting:
    """A waiter that is told once what became of everything below an offset."""

    __slots__ = ("_settle", "expiry", "next_log_offset", "since")

    def __init__(self, next_log_offset: int, settle: Settle, since: float) -> None:
        self.next_log_offset = next_log_offset
        self.since = since
        self.expiry: asyncio.TimerHandle | None = None
        self._settle: Settle | None = settle

    @property
    def is_over(self) -> bool:
        return self._settle is None

    def end(self, outcome: Outcome) -> None:
        settle, self._settle = self._settle, None
        if self.expiry is not None:
            self.expiry.cancel()
        if settle is not None:
            settle(outcome)


class Durability:
    """Sends waiting for the disk and for replicas, in log order."""

    def __init__(
        self,
        timeout_s: float,
        on_flush: Callable[[], None],
        *,
        waits_for_disk: bool = True,
        replicas_timeout_s: float = 3.0,
        flushed_now: Callable[[], int] = lambda: FAR,
    ) -> None:
        """`waits_for_disk`: False for ASYNC_FLUSH, with which only replicas are waited for. `flushed_now`: up to where the
        log is on disk when it is asked."""
        self._timeout_s = timeout_s
        self._replicas_timeout_s = replicas_timeout_s
        self._on_flush = on_flush
        self._flushed_now = flushed_now
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._waits_for_disk = waits_for_disk
        self._flushed = 0 if waits_for_disk else FAR
        self._replicated = FAR
        self._limit = min(self._flushed, self._replicated)

    @property
    def waits(self) -> bool:
        """Whether an answer may have to wait at all."""
        return self._waits_for_disk or self._replicated != FAR

    @property
    def waiting(self) -> int:
        """Answers, or groups of them, that wait now."""
        return len(self._waiting)

    @property
    def limit(self) -> int:
        """Everything below this log offset is where it must be."""
        return self._limit

    def wait_for_replicas(self, next_log_offset: int) -> None:
        """Replicas that count have everything below this offset, and more has to wait for them; FAR: nothing has to."""
        self._replicated = next_log_offset
        self._release()

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
        if next_log_offset <= self._limit:
            settle(Durable.YES)
            return
        waiting = _Waiting(next_log_offset, settle, self._loop.time())
        waiting.expiry = self._loop.call_later(self._first_timeout_s(), self._expire, waiting)
        self._waiting.append(waiting)

    def _first_timeout_s(self) -> float:
        if self._replicated == FAR:
            return self._timeout_s
        return min(self._timeout_s, self._replicas_timeout_s) if self._waits_for_disk else self._replicas_timeout_s

    def _expire(self, waiting: _Waiting) -> None:
        if waiting.is_over:
            return
        waited_s = self._loop.time() - waiting.since
        lacks_disk = waiting.next_log_offset > self._flushed
        lacks_replicas = waiting.next_log_offset > self._replicated
        if lacks_disk and waited_s >= self._timeout_s - _SOON_S:
            waiting.end(Durable.TIMED_OUT)
        elif lacks_replicas and waited_s >= self._replicas_timeout_s - _SOON_S:
            waiting.end(Durable.NOT_REPLICATED)
        else:
            until_s = self._timeout_s if lacks_disk else self._replicas_timeout_s
            waiting.expiry = self._loop.call_later(max(0.0, until_s - waited_s), self._expire, waiting)
        while self._waiting and self._waiting[0].is_over:
            self._waiting.popleft()

    def _call(self, function: Callable[..., None], argument: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, argument)

    def _flushed_to(self, next_log_offset: int) -> None:
        if self._waits_for_disk:
            # The report may be of a flush before the log was cut.
            self._flushed = max(self._flushed, min(next_log_offset, self._flushed_now()))
        self._on_flush()
        self._release()

    def _release(self) -> None:
        self._limit = limit = min(self._flushed, self._replicated)
        waiting = self._waiting
        while waiting and waiting[0].next_log_offset <= limit:
            waiting.popleft().end(Durable.YES)

    def _committed_to(self, next_log_offset: int) -> None:
        self._on_flush()

    def _fail(self, error: StoreError) -> None:
        self.fail(error)

    def fail(self, error: StoreError) -> None:
        """Nothing that waits can be promised any more: the disk failed, or this broker is not the master any more."""
        while self._waiting:
            self._waiting.popleft().end(error)

    def log_cut(self, log_offset: int) -> None:
        """The log ends here now: what is written next must be waited for again."""
        if self._waits_for_disk:
            self._flushed = min(self._flushed, log_offset)
        self._release()


def _settle(future: asyncio.Future[Durable], outcome: Outcome) -> None:
    if future.done():
        return
    if isinstance(outcome, StoreError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
