"""How many sends may be under way at once."""

from __future__ import annotations

import asyncio
from collections import deque


class SendWindow:
    """Room for so many; those who find none wait, first come, first served.

    What asyncio's semaphore does, but who finds room is let in by a plain call: nearly all sends do.
    """

    __slots__ = ("_room", "_waiting")

    def __init__(self, room: int) -> None:
        self._room = room
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_enter(self) -> bool:
        """Go in if there is room; each who went in must `leave`."""
        if self._room <= 0:
            return False
        self._room -= 1
        return True

    async def enter(self) -> None:
        """Go in as soon as there is room."""
        if self.try_enter():
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self.leave()  # it was given to us in the same turn
            raise

    async def __aenter__(self) -> None:
        await self.enter()

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give the room to who waits longest, or keep it for who comes next."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._room += 1
