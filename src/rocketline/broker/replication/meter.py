"""How many bytes went over a connection in the last second."""

from __future__ import annotations

from collections.abc import Callable


class ByteMeter:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.total = 0
        self._monotonic = monotonic
        self._since = monotonic()
        self._counted = 0
        self._last = 0

    def add(self, count: int) -> None:
        self.total += count
        self._counted += count
        self._turn()

    @property
    def per_second(self) -> int:
        self._turn()
        return self._last

    def _turn(self) -> None:
        passed_s = self._monotonic() - self._since
        if passed_s >= 1.0:
            # A second of silence counts as one.
            self._last = round(self._counted / passed_s)
            self._counted = 0
            self._since += passed_s
