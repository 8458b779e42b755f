"""The clock of one host of a simulation: its wall time can be set, and it can run too fast or too slow."""

from __future__ import annotations

from rocketline.clock import Clock


class HostClock:
    """True time until it is set or drifts. Monotonic time is the same on all hosts: setting a clock does not change it."""

    def __init__(self, true: Clock) -> None:
        self._true = true
        self._ahead_ms = 0.0
        self._rate = 0.0
        self._since = 0.0

    def now_ms(self) -> int:
        return self._true.now_ms() + round(self._ahead_ms + self._drifted_ms())

    def monotonic(self) -> float:
        return self._true.monotonic()

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back."""
        self._ahead_ms += seconds * 1000

    def drift(self, rate: float) -> None:
        """From now on the clock gains `rate` seconds per second; below zero it loses them."""
        self._ahead_ms += self._drifted_ms()
        self._rate, self._since = rate, self._true.monotonic()

    def _drifted_ms(self) -> float:
        return (self._true.monotonic() - self._since) * self._rate * 1000 if self._rate else 0.0
