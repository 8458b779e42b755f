"""Our own requests on one connection that wait for their answer.

One timer serves them all: their deadlines lie in a heap, and the first of them is looked at when it has come. A call that
was answered leaves its deadline behind, so that an answer costs little; when most of the heap is such leftovers, they go.
One whose caller gave up (the future is cancelled) stays until its answer, its deadline, or `drop_given_up`.
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
    """The calls of one connection, by the number that their answers repeat."""

    __slots__ = ("_deadlines", "_look_at", "_loop", "_timer", "_waiting", "remote")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.remote = "?"
        self._loop = loop
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._deadlines: list[tuple[float, int, int, float]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = inf

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, opaque: int) -> bool:
        return opaque in self._waiting

    def add(self, opaque: int, code: int, timeout: float) -> asyncio.Future[Command]:
        """What will be the answer; RequestTimeout when there is none in time."""
        loop, deadlines = self._loop, self._deadlines
        deadline = loop.time() + timeout
        answer = self._waiting[opaque] = loop.create_future()
        if len(deadlines) > 2 * len(self._waiting) + SPARE_DEADLINES:
            deadlines[:] = [entry for entry in deadlines if entry[1] in self._waiting]
            heapify(deadlines)
        heappush(deadlines, (deadline, opaque, code, timeout))
        if deadline < self._look_at:
            self._look_again(deadline)
        return answer

    def answer(self, response: Command) -> None:
        """The peer has answered one of them."""
        call = self._waiting.pop(response.opaque, None)
        if call is None or call.done():
            log.debug("answer #%d from %s has no request waiting", response.opaque, self.remote)
            return
        call.set_result(response)

    def forget(self, opaque: int) -> None:
        """This call was never made."""
        self._waiting.pop(opaque, None)

    def drop_given_up(self) -> None:
        """Forget the calls whose callers do not wait any more."""
        self._waiting = {opaque: call for opaque, call in self._waiting.items() if not call.done()}

    def fail(self, why: type[TransportError], text: str) -> None:
        """Nobody will answer those that are left."""
        waiting, self._waiting = self._waiting, {}
        self._deadlines.clear()
        self._look_again(inf)
        for call in waiting.values():
            if not call.done():
                call.set_exception(why(text))

    def _look_again(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._look_at = at
        self._timer = self._loop.call_at(at, self._look) if at < inf else None

    def _look(self) -> None:
        """A deadline has come; whose, shows."""
        now = max(self._loop.time(), self._look_at)  # a loop may be early by the resolution of its clock
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now or deadlines[0][1] not in self._waiting):
            _, opaque, code, timeout = heappop(deadlines)
            call = self._waiting.pop(opaque, None)
            if call is not None and not call.done():
                call.set_exception(RequestTimeout(f"{self.remote} did not answer request {code} within {timeout:g} s"))
        self._look_again(deadlines[0][0] if deadlines else inf)
