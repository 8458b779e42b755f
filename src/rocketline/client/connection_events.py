"""Telling a user's function of connections that were made and lost.

    def watch(event: ConnectionEvent) -> None:
        print(event.address, "connected" if event.is_connected else f"lost: {event.reason}")

    Producer("127.0.0.1:9876", group="shop", options=ClientOptions(on_connection=watch))

It hears of the connections to name servers and brokers that all clients of a session share, in order, one event at a time.
A plain function runs in a thread, an async one on the event loop; neither delays anything else. When it is too slow, the
oldest events are left out. What it raises is logged. Sockets on which threads send directly are not told of.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rocketline.client.tasks import OwnedTasks

log = logging.getLogger(__name__)

MAX_WAITING = 256
CLOSE_S = 1.0
"""How long a client that closes waits until the last events are told."""


class ConnectionEvent(NamedTuple):
    """A connection was made, or lost."""

    address: str
    is_connected: bool
    reason: str = ""
    """Why it was lost."""


ConnectionCallback = Callable[[ConnectionEvent], object]


class ConnectionEvents:
    """The events of one session that wait to be told."""

    def __init__(self, callback: ConnectionCallback) -> None:
        self._callback = callback
        self._waiting: deque[ConnectionEvent] = deque(maxlen=MAX_WAITING)
        self._tasks = OwnedTasks()

    def note(self, address: str, lost_because: str | None) -> None:
        """A connection was made (None) or lost; called on the event loop."""
        if len(self._waiting) == MAX_WAITING:
            log.warning(
                "%r is too slow: %d connection events wait, the oldest is left out", self._callback, MAX_WAITING
            )
        self._waiting.append(ConnectionEvent(address, lost_because is None, lost_because or ""))
        if not self._tasks:
            self._tasks.start(self._tell(), "connection events")

    async def _tell(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            try:
                if inspect.iscoroutinefunction(self._callback):
                    await self._callback(event)
                else:
                    await asyncio.to_thread(self._callback, event)
            except Exception:
                log.exception("%r, told of %s, failed", self._callback, event)

    async def close(self) -> None:
        await self._tasks.drain(CLOSE_S)
