"""Detects an event loop that was blocked by a function.

A timer beats every quarter of a second while handlers run; a late beat shows how long the loop was blocked. Pulls,
heartbeats and the renewal of queue locks wait just as long, so a function that blocks the loop makes brokers take this
client for dead.
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
        """Start to measure; earlier standstills do not count."""
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
