"""The background workers of a broker: tasks that run as long as it does.

A worker handles many items, and looks after bad ones itself (`set_aside.py`). Should it fail all the same, because of a
mistake of ours, it is not over: it begins anew after a pause, and the log says what happened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from rocketline.errors import StoreError

log = logging.getLogger(__name__)

BEGIN_ANEW_S = 1.0

Work = Callable[[], Coroutine[Any, Any, None]]


class BackgroundTasks:
    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def names(self) -> set[str]:
        return set(self._tasks)

    def start(self, name: str, work: Work) -> None:
        """Begin work that never ends."""
        self._tasks[name] = asyncio.get_running_loop().create_task(_keep_on(name, work), name=name)

    def start_once(self, name: str, work: Work) -> None:
        """Begin work that ends by itself."""
        self._tasks[name] = asyncio.get_running_loop().create_task(work(), name=name)

    async def finished(self, name: str) -> None:
        """Wait for work that ends by itself."""
        await asyncio.wait([self._tasks[name]])

    def start_periodic(self, name: str, interval_s: float | Callable[[], float], work: Work) -> None:
        """Begin work that is done every so many seconds; a function is asked anew each time."""
        self.start(name, partial(_every, name, interval_s, work))

    def cancel(self, names: Iterable[str]) -> None:
        """Have these end; who are not there, or ended, are passed over."""
        for name in names:
            if name in self._tasks:
                self._tasks[name].cancel()

    async def stop(self, names: Iterable[str]) -> None:
        """Return when these have ended."""
        ending = [self._tasks.pop(name) for name in names if name in self._tasks]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def _keep_on(name: str, work: Work) -> None:
    while True:
        try:
            await work()
        except Exception:
            log.exception("%s failed, beginning anew in %g s", name, BEGIN_ANEW_S)
        await asyncio.sleep(BEGIN_ANEW_S)


async def _every(name: str, interval_s: float | Callable[[], float], work: Work) -> None:
    failure = ""
    while True:
        pause_s = interval_s() if callable(interval_s) else interval_s
        await asyncio.sleep(pause_s)
        try:
            await work()
        except Exception as error:
            if str(error) != failure:  # a disk that is full may be so for long
                ours = not isinstance(error, StoreError)
                log.error("%s failed, trying again every %g s: %s", name, pause_s, error, exc_info=ours)
            failure = str(error)
        else:
            failure = ""
