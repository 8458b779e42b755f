"""Notices that the event loop stood still: somebody's function kept it and nothing else could happen.

A beat every quarter of a second while handlers run; one that comes late tells how long nothing ran. Pulls, heartbeats and
the renewal of queue locks stand still just as long, so that a function which blocks the loop looks like a dead client to
the brokers.
"""

from __future__ import annotations

import asyncio
from collections import deque

from rocketline.clock import Clock

BEAT_S = 0.25
REMEMBERED = 16


class LoopPulse:
    """Beats in `run`, between `begin` and `rest`; `standstill_since` may be asked at any time between these."""

    __slots__ = ("_clock", "_last_s", "_late", "_least_s", "_needed")

    def __init__(self, clock: Clock, least_s: float) -> None:
        """Standstills shorter than `least_s` are not remembered."""
        self._clock = clock
        self._least_s = least_s
        self._last_s = clock.monotonic()
        self._late: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)
        self._needed = asyncio.Event()

    def begin(self) -> None:
        """Whatever stood still before is nobody's fault who comes now."""
        self._last_s = self._clock.monotonic()
        self._needed.set()

    def rest(self) -> None:
        self._needed.clear()

    async def run(self) -> None:
        while True:
            await self._needed.wait()
            await asyncio.sleep(BEAT_S)
            now_s = self._clock.monotonic()
            if (late_s := now_s - self._last_s - BEAT_S) > self._least_s and self._needed.is_set():
                self._late.append((now_s, late_s))
            self._last_s = now_s

    def standstill_since(self, started_s: float) -> float:
        """The longest standstill since a moment, in seconds; the one of right now counts, too."""
        now_s = self._clock.monotonic()
        # Whoever asks may just have ended it, before the late beat had its turn.
        known = [*self._late, (now_s, now_s - self._last_s - BEAT_S)]
        return max(0.0, *(min(late_s, ended_s - started_s) for ended_s, late_s in known))
