"""How much people may ask for at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.console.problems import Problem

SENDS_A_SECOND = 10
MAX_REQUEST_BYTES = 1 << 20
MAX_SEND_BYTES = (4 << 20) * 3 + (64 << 10)
"""A body of 4 MiB, percent-encoded by a browser's form at worst."""


class Heavy(Enum):
    """Work that is limited: (at once for a person, at once in all)."""

    SCAN = (2, 8)
    TAIL = (4, 32)
    CELLS = (12, 200)

    def __init__(self, each: int, total: int) -> None:
        self.each = each
        self.total = total


class Limits:
    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._running: Counter[tuple[Heavy, str]] = Counter()
        self._sends: Counter[tuple[str, int]] = Counter()

    @contextmanager
    def hold(self, kind: Heavy, person: str) -> Iterator[None]:
        """Count one more piece of work while it lasts; Problem 429 when there is too much."""
        total = sum(count for (one, _), count in self._running.items() if one is kind)
        if self._running[kind, person] >= kind.each or total >= kind.total:
            raise Problem(429, "busy", retry_after_s=2)
        self._running[kind, person] += 1
        try:
            yield
        finally:
            self._running[kind, person] -= 1
            if not self._running[kind, person]:
                del self._running[kind, person]

    def count_send(self, person: str) -> None:
        now = int(self._clock.monotonic())
        for key in [key for key in self._sends if key[1] != now]:
            del self._sends[key]
        self._sends[person, now] += 1
        if self._sends[person, now] > SENDS_A_SECOND:
            raise Problem(429, "busy", retry_after_s=1)
