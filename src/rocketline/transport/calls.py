"""The requests we sent on one connection that wait for their answer.

One timer serves all of them: the deadlines are in a heap, and the timer is set to the first. An answered call leaves its
deadline in the heap, so that an answer costs little; when most deadlines in the heap are such, they are removed. A call
whose caller gave up (the future is cancelled) stays until its answer, its deadline, or `drop_given_up`.
"""

from __future__ import annotations

import asyncio
import logging
from heapq import heapify, heappop, heappush
from math import inf

from rocketline.errors import RequestTimeout, TransportError
from rocketline.protocol.command import Command

log = logging.getLogger(__name__)

SPARE_DEADLINES = 64


class Calls:
    """The waiting calls of one connection, by `opaque`, which an answer repeats."""

    __slots__ = ("_deadlines", "_loop", "_timer", "_timer_at", "_waiting", "remote")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.remote = "?"
        self._loop = loop
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._deadlines: list[tuple[float, int, int, float]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, opaque: int) -> bool:
        return opaque in self._waiting

    def add(self, opaque: int, code: int, timeout: float) -> asyncio.Future[Command]:
        """Add a call; returns the future of its answer, which fails with RequestTimeout after `timeout` seconds."""
        loop, deadlines = self._loop, self._deadlines
        deadline = loop.time() + timeout
        answer = self._waiting[opaque] = loop.create_future()
        if len(deadlines) > 2 * len(self._waiting) + SPARE_DEADLINES:
            deadlines[:] = [entry for entry in deadlines if entry[1] in self._waiting]
            heapify(deadlines)
        heappush(deadlines, (deadline, opaque, code, timeout))
        if deadline < self._timer_at:
            self._set_timer(deadline)
        return answer

    def answer(self, response: Command) -> None:
        """Complete the call that a response answers."""
        call = self._waiting.pop(response.opaque, None)
        if call is None or call.done():
            log.debug("answer #%d from %s has no request waiting", response.opaque, self.remote)
            return
        call.set_result(response)

    def forget(self, opaque: int) -> None:
        """Remove a call that was not sent."""
        self._waiting.pop(opaque, None)

    def drop_given_up(self) -> None:
        """Remove the calls whose callers do not wait any more."""
        self._waiting = {opaque: call for opaque, call in self._waiting.items() if not call.done()}

    def fail(self, why: type[TransportError], text: str) -> None:
        """Fail all waiting calls: they will not be answered."""
        waiting, self._waiting = self._waiting, {}
        self._deadlines.clear()
        self._set_timer(inf)
        for call in waiting.values():
            if not call.done():
                call.set_exception(why(text))

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._expire) if at < inf else None

    def _expire(self) -> None:
        """Fail the calls whose deadline has passed, and set the timer to the next deadline."""
        now = max(self._loop.time(), self._timer_at)  # a loop may call early by the resolution of its clock
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now or deadlines[0][1] not in self._waiting):
            _, opaque, code, timeout = heappop(deadlines)
            call = self._waiting.pop(opaque, None)
            if call is not None and not call.done():
                call.set_exception(RequestTimeout(f"{self.remote} did not answer request {code} within {timeout:g} s"))
        self._set_timer(deadlines[0][0] if deadlines else inf)
