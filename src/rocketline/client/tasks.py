"""Background tasks with an owner: what an object starts, it also cancels and waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)


class OwnedTasks:
    """The running tasks of one object."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task %s ended by an error", task.get_name(), exc_info=error)

    async def drain(self, timeout_s: float) -> None:
        """Wait until all have ended by themselves, and cancel those that take longer."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        await self.cancel()

    async def finished(self) -> None:
        """Wait until those that run now have ended by themselves."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def cancel(self) -> None:
        """Cancel all and wait until they have ended."""
        await cancel_and_wait(*self._tasks)


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for them; their errors are not raised here, a cancellation of the caller is."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def repeat(every_s: float, work: Callable[[], Awaitable[object]], what: str) -> None:
    """Do `work` again and again, with a pause before each; a failure is logged and does not end it."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await work()
        except Exception:
            log.exception("%s failed; next attempt in %g s", what, every_s)
