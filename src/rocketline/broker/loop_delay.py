"""How long requests wait unread because the event loop is behind.

Apache's broker puts requests in a queue and drops those that waited too long. Ours has no such queue: what is not served yet
is in the sockets, and nobody knows when it arrived. But the time of the last turn of the event loop is known: a request that
is read later than that plus a limit may have waited for the limit, and its sender may be about to give up. To refuse it
costs little and the sender knows at once; to store it would cost more, and a retry would store it again.
"""

from __future__ import annotations

import asyncio

from rocketline.clock import Clock

PULSES = 5
"""Turns of the loop that are noted within the limit."""


class LoopDelay:
    """Tells whether the request being served may have waited longer than a limit."""

    __slots__ = ("_clock", "_last", "_longest_s", "_pulse_s")

    def __init__(self, limit_ms: int, clock: Clock) -> None:
        self._clock = clock
        self._pulse_s = limit_ms / 1000 / PULSES
        self._longest_s = limit_ms / 1000 + self._pulse_s
        self._last: float | None = None

    async def run(self) -> None:
        """Note the turns of the loop regularly."""
        try:
            while True:
                now = self._clock.monotonic()
                if self._last is not None and now - self._last > self._longest_s:
                    # We may be first after a standstill: what waited meanwhile is read in the next turn, and still late.
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                self._last = self._clock.monotonic()
                await asyncio.sleep(self._pulse_s)
        finally:
            self._last = None  # a broker that closes still serves what it has read

    def over_limit_ms(self) -> int:
        """Milliseconds that the request may have waited, when those are too many; else 0."""
        if self._last is None:
            return 0
        waited_s = self._clock.monotonic() - self._last
        return round((waited_s - self._pulse_s) * 1000) if waited_s > self._longest_s else 0
