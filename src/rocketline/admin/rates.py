"""Messages a second into and out of brokers, from the counters that they tell.

A broker's own rates are those of its last minute, and Apache's are blank when it had nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.protocol.numbers import read_number


class Speed(NamedTuple):
    """Messages a second."""

    into: float
    out: float


class Rates:
    """By how much the counters of brokers grew since they were read before."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._before: dict[str, tuple[float, float, float, int]] = {}

    def of(self, broker: str, info: Mapping[str, str], read: int = 0) -> Speed | None:
        """Since the last call for this broker; None when that is not known. `read` is how many messages the asking tool
        itself has read there so far: those are no traffic."""
        now_s = self._clock.monotonic()
        put, got = (read_number(info.get(f"msg{kind}TotalTodayNow", "")) for kind in ("Put", "Get"))
        if put is None or got is None:
            return None
        before_s, put_before, got_before, read_before = self._before.get(broker, (now_s, put, got, read))
        self._before[broker] = (now_s, put, got, read)
        passed_s = now_s - before_s
        # A broker that was started again counts from zero.
        if passed_s <= 0 or put < put_before or got < got_before:
            return None
        out = max(0, got - got_before - (read - read_before))
        return Speed((put - put_before) / passed_s, out / passed_s)
