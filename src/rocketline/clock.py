"""The only module that reads the time.

Wall time is for stamps that leave the process (milliseconds, as on the wire and on disk); monotonic time is for every
time-out and interval, so that a clock that is set back or forward neither fires nor stalls anything.
"""

from __future__ import annotations

import time
from typing import Protocol

from rocketline.system.clocks import steady_clock


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Monotonic time in seconds: it never goes back."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(steady_clock())


class ManualClock:
    """A clock that moves only when it is advanced: for tests and simulations."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        self._now_ms += round(seconds * 1000)
        self._elapsed += seconds

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back; monotonic time stays as it is."""
        self._now_ms += round(seconds * 1000)


SYSTEM_CLOCK: Clock = SystemClock()
