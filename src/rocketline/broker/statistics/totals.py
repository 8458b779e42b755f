"""Total traffic of a broker over the last 10 seconds, minute and ten minutes, and since midnight.

A sample is taken every ten seconds. A rate compares the current totals with the newest sample that is old enough, or with
the oldest there is, so it is right from the first second on, and it is computed only on request.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rocketline.clock import Clock

RATE_WINDOWS_S = (10, 60, 600)
KEPT_SAMPLES = 62
"""The longest window, a sample every ten seconds, and one to spare."""


class Totals(NamedTuple):
    put: int = 0
    put_bytes: int = 0
    got: int = 0
    """Messages delivered."""
    found: int = 0
    """Reads that found messages."""
    missed: int = 0

    @property
    def reads(self) -> int:
        return self.found + self.missed


class TotalsHistory:
    """Samples of the totals; owner thread only."""

    def __init__(self, clock: Clock, totals: Callable[[], Totals]) -> None:
        self._clock = clock
        self._totals = totals
        self._samples = deque([(clock.monotonic(), Totals())], maxlen=KEPT_SAMPLES)
        self._today = self._date()
        self.this_morning = Totals()
        """At the last midnight; at the start, when there was none since."""
        self.yesterday_morning = Totals()

    def sample(self) -> None:
        now = self._totals()
        self._samples.append((self._clock.monotonic(), now))
        today = self._date()
        if today != self._today:
            self._today = today
            self.yesterday_morning, self.this_morning = self.this_morning, now

    def rates(self, count: Callable[[Totals], int]) -> str:
        """Per second over each window, as RocketMQ's tools read it: three numbers with spaces between."""
        now, total = self._clock.monotonic(), count(self._totals())
        return " ".join(str(self._rate(now, total, window_s, count)) for window_s in RATE_WINDOWS_S)

    def _rate(self, now: float, total: int, window_s: int, count: Callable[[Totals], int]) -> float:
        before, then = self._samples[0]
        for at, sample in reversed(self._samples):
            if now - at >= window_s:
                before, then = at, sample
                break
        # The counters of a deleted topic are gone: less than before is a rate of 0, not a negative one.
        return max(0, total - count(then)) / (now - before) if now > before else 0.0

    def _date(self) -> tuple[int, int]:
        local = time.localtime(self._clock.now_ms() // 1000)
        return local.tm_year, local.tm_yday
