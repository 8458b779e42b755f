"""Rates, latencies and CPU time of one run of sends. Needs only the standard library and, if asked for, uvloop, because
it also runs with the clients of rivals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from typing import Any, NamedTuple

WARM_UP_S = 0.5
LOOPS = ("uvloop", "asyncio")


class Produced(NamedTuple):
    """One run: messages per second, their latency, and CPU time per message of producer and broker."""

    case: str
    sent: int
    rate: float
    p50_ms: float
    p99_ms: float
    producer_cpu_us: float
    broker_cpu_us: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.case:<13} {self.rate:>9,.0f} msg/s   p50 {self.p50_ms:7.2f} ms, p99 {self.p99_ms:7.2f} ms   "
            f"CPU per message: producer {self.producer_cpu_us:5.1f} us, broker {self.broker_cpu_us:5.1f} us"
        )


class Stopwatch:
    """Latencies of what was sent after the warm-up."""

    def __init__(self, seconds: float) -> None:
        self.start = time.perf_counter() + min(WARM_UP_S, seconds)
        self.end = self.start + seconds
        self.sent = 0
        self._latencies: list[float] = []
        self._cpu_at_start = 0.0

    def note(self, began: float) -> bool:
        """Record a finished send; returns whether another may begin: until the end, and until one was measured."""
        now = time.perf_counter()
        self.sent += 1
        if began >= self.start:
            if not self._latencies:
                self._cpu_at_start = time.process_time()
            self._latencies.append(now - began)
        return now < self.end or not self._latencies

    def figures(self, case: str) -> Produced:
        took, cpu_s = time.perf_counter() - self.start, time.process_time() - self._cpu_at_start
        found = sorted(self._latencies) or [0.0]
        count = len(found)
        p50, p99 = found[count // 2] * 1000, found[count * 99 // 100] * 1000
        return Produced(case, self.sent, count / took, p50, p99, cpu_s / count * 1e6)


def run_on(loop: str, run: Coroutine[Any, Any, Produced]) -> Produced:
    """Run on uvloop, or on asyncio's own loop."""
    with asyncio.Runner(loop_factory=import_module("uvloop").new_event_loop if loop == "uvloop" else None) as runner:
        return runner.run(run)


async def in_flight(send: Callable[[], Awaitable[object]], count: int, watch: Stopwatch) -> None:
    """Keep `count` sends in flight until the end of the run."""

    async def work() -> None:
        more = True
        while more:
            began = time.perf_counter()
            await send()
            more = watch.note(began)

    await asyncio.gather(*(work() for _ in range(count)))
