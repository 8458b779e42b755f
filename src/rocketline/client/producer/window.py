"""A limit on the number of sends in flight."""

from __future__ import annotations

import asyncio
from collections import deque


class SendWindow:
    """A limit on sends in flight; those over the limit wait, first come, first served.

    Like asyncio's semaphore, but `try_enter` is a plain call, which is enough for nearly all sends.
    """

    __slots__ = ("_room", "_waiting")

    def __init__(self, room: int) -> None:
        self._room = room
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_enter(self) -> bool:
        """Enter if there is room; whoever entered must `leave`."""
        if self._room <= 0:
            return False
        self._room -= 1
        return True

    async def enter(self) -> None:
        """Enter as soon as there is room."""
        if self.try_enter():
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self.leave()  # it was granted in the same turn of the loop
            raise

    async def __aenter__(self) -> None:
        await self.enter()

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give the place to the one that waits longest, or free it."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._room += 1
