"""How long requests lie unread because the broker is behind.

Apache's broker puts requests in a queue and throws out those that waited too long. Ours has no such queue: what is not
served yet lies in the sockets, and nobody can tell when it arrived. But it can be told when the event loop was last round: a
request that is met later than that, plus a limit, may have waited for the limit, and its sender may be about to give up.
Refusing it costs little and is heard at once; storing it would cost more, and it would be stored again when it is retried.
"""

from __future__ import annotations

import asyncio

from rocketline.clock import Clock

PULSES = 5
"""Times that the loop is asked to show up within the limit."""


class LoopDelay:
    """Says of the request being served whether it may have waited longer than a limit."""

    __slots__ = ("_clock", "_last", "_longest_s", "_pulse_s")

    def __init__(self, limit_ms: int, clock: Clock) -> None:
        self._clock = clock
        self._pulse_s = limit_ms / 1000 / PULSES
        self._longest_s = limit_ms / 1000 + self._pulse_s
        self._last: float | None = None

    async def run(self) -> None:
        """Show up regularly, as long as the loop comes round."""
        try:
            while True:
                now = self._clock.monotonic()
                if self._last is not None and now - self._last > self._longest_s:
                    # We may be first after a standstill: what waited meanwhile is read in the next round, and still late.
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
