"""Requests to brokers that no call waits for: prolonging, giving back, putting away.

A bounded number is under way at each broker, and the next one begins when one ends. A broker that hangs holds up what is for
itself alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Requests on their way to one broker."""
MAX_WAITING = 200_000
"""Requests that wait for their turn at one broker. More are left out: messages then come again by themselves."""

Work = Callable[[], Awaitable[None]]


class Background:
    def __init__(self) -> None:
        self._waiting: dict[str, deque[Work]] = {}
        self._running: dict[str, int] = {}
        self._workers: set[asyncio.Task[None]] = set()

    def start(self, broker_name: str, work: Work) -> None:
        """Have something done at a broker, now or after what was started before."""
        waiting = self._waiting.setdefault(broker_name, deque())
        if len(waiting) >= MAX_WAITING:
            log.warning("%d requests wait for broker %s: another one is left out", len(waiting), broker_name)
            return
        waiting.append(work)
        if self._running.get(broker_name, 0) < AT_ONCE:
            self._running[broker_name] = self._running.get(broker_name, 0) + 1
            worker = asyncio.get_running_loop().create_task(self._work(broker_name, waiting))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _work(self, broker_name: str, waiting: deque[Work]) -> None:
        try:
            while waiting:
                try:
                    await waiting.popleft()()
                except Exception:
                    log.exception("a request to broker %s failed", broker_name)
        finally:
            self._running[broker_name] -= 1
            if not self._running[broker_name]:
                del self._running[broker_name], self._waiting[broker_name]

    async def finish(self, limit_s: float) -> None:
        """Wait until everything is done, but not for longer than that."""
        workers = set(self._workers)
        if workers:
            _, late = await asyncio.wait(workers, timeout=limit_s)
            for worker in late:
                worker.cancel()
            if late:
                await asyncio.wait(late)
