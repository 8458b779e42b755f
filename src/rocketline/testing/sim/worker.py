"""Runs the background work of a store on virtual time, with a delay for the disk.

The delay is before a round; the round itself takes no time. So a round covers what is appended during the delay, as
with a real disk, and a power cut during the delay finds that not flushed.
"""

from __future__ import annotations

import asyncio
from random import Random

from rocketline.store.flush.flusher import BackgroundTask


class LoopWorker:
    """A worker that uses timers of the loop instead of a thread."""

    def __init__(self, task: BackgroundTask, chance: Random, sync_s: tuple[float, float] = (0.0005, 0.01)) -> None:
        self._task = task
        self._chance = chance
        self._sync_s = sync_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_awake = False

    def start(self) -> None:
        if self._task.prepare_wait():
            self._timer = self._loop.call_later(self._task.interval_s, self._round)
        else:
            self.wake()

    def wake(self) -> None:
        if self._is_awake:
            return
        self._is_awake = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._chance.uniform(*self._sync_s), self._round)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _round(self) -> None:
        self._is_awake = False
        self._task.prepare_round()
        self._task.run_round()
        if self._task.failure is None:
            self.start()
