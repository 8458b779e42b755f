"""Times and rates of a measurement, in memory that does not grow with it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic

_STEPS = 100
"""Steps of the logarithm: two neighbouring times differ by one percent."""
_LEAST_S = 1e-7


class Times:
    """How long things took. Percentiles are right within one percent, the maximum is exact."""

    def __init__(self) -> None:
        self.count = 0
        self.most_s = 0.0
        self._counts: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        self.count += 1
        self.most_s = max(self.most_s, seconds)
        self._counts[round(math.log(max(seconds, _LEAST_S)) * _STEPS)] += 1

    def percentile_ms(self, percent: float) -> float | None:
        """The time in milliseconds that this share of them did not exceed; None without any.

        >>> times = Times()
        >>> for number in range(1, 101): times.add(number / 1000)
        >>> round(times.percentile_ms(50)), round(times.percentile_ms(99)), times.most_s
        (50, 99, 0.1)
        """
        wanted, seen = math.ceil(self.count * percent / 100), 0
        for step in sorted(self._counts):
            seen += self._counts[step]
            if seen >= wanted:
                return round(min(math.exp(step / _STEPS), self.most_s) * 1000, 3)
        return None


@dataclass
class Figures:
    """What was measured of one kind of work."""

    what: str
    times: Times = field(default_factory=Times)
    messages: int = 0
    bytes: int = 0
    failed: int = 0
    started: float = field(default_factory=monotonic)
    seconds: float | None = None
    """None: it has not been stopped."""

    def stop(self) -> None:
        self.seconds = monotonic() - self.started


@dataclass(frozen=True)
class BenchLimits:
    """When a measurement ends: after so many messages or so much time, whatever comes first."""

    count: int | None
    seconds: float | None

    def reached(self, figures: Figures) -> bool:
        is_enough = self.count is not None and figures.messages + figures.failed >= self.count
        return is_enough or (self.seconds is not None and monotonic() - figures.started >= self.seconds)


COLUMNS = (
    "what", "messages", "failed", "seconds", "messages/s", "mib/s", "bytes", "mean size", "p50 ms", "p99 ms", "p99.9 ms",
    "max ms",
)  # fmt: skip


def figures_row(figures: Figures) -> tuple[object, ...]:
    """The values of `COLUMNS`."""
    seconds, times = max(figures.seconds or 0.0, 1e-9), figures.times
    return (
        figures.what,
        figures.messages,
        figures.failed,
        round(seconds, 3),
        round(figures.messages / seconds, 1),
        round(figures.bytes / seconds / (1 << 20), 3),
        figures.bytes,
        round(figures.bytes / figures.messages, 1) if figures.messages else None,
        *(times.percentile_ms(percent) for percent in (50, 99, 99.9)),
        round(times.most_s * 1000, 3) if times.count else None,
    )
