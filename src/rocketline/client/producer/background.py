"""Background sends of `submit`: a bounded number at a time, each with its callback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from rocketline.client.producer.receipts import SendReceipt
from rocketline.client.producer.window import SendWindow
from rocketline.errors import ProducerClosed

log = logging.getLogger(__name__)

SendCallback = Callable[[SendReceipt | Exception], object]
"""Gets the receipt, or the error; runs on the event loop, so it must not block."""


class BackgroundSends:
    """The running sends that `submit` started."""

    def __init__(self, max_running: int) -> None:
        self._room = SendWindow(max_running)
        self._running: set[asyncio.Task[SendReceipt]] = set()

    async def start(
        self, send: Coroutine[Any, Any, SendReceipt], callback: SendCallback | None
    ) -> asyncio.Task[SendReceipt]:
        """Begin a send as soon as there is room for one more."""
        try:
            await self._room.enter()
        except BaseException:
            send.close()
            raise
        task = asyncio.get_running_loop().create_task(send)
        self._running.add(task)
        task.add_done_callback(partial(self._done, callback))
        return task

    def _done(self, callback: SendCallback | None, task: asyncio.Task[SendReceipt]) -> None:
        self._running.discard(task)
        self._room.leave()
        if callback is None:
            return
        outcome: SendReceipt | Exception
        if task.cancelled():
            outcome = ProducerClosed("the send was cancelled")
        else:
            error = task.exception()
            outcome = error if isinstance(error, Exception) else task.result()
        try:
            callback(outcome)
        except Exception:
            log.exception("%r, told of a send, failed", callback)

    async def finished(self) -> None:
        """Wait for all; each has its time limit."""
        if self._running:
            await asyncio.wait(self._running)
