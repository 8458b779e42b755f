"""The room that long messages of one connection are given, beyond what every stream has.

What is given at once is bounded. Calls that want more wait, and the oldest is served first. Room is given back when its
message is complete or its call is over.
"""

from __future__ import annotations

from rocketline.grpc.calls import Call
from rocketline.http2 import Http2Connection

MAX_GRANTED_BYTES = 32 * 1024 * 1024
"""Of one connection at a time, and the message that exceeds it."""


class Room:
    def __init__(self, http2: Http2Connection) -> None:
        self._http2 = http2
        self._granted = 0
        self._waiting: dict[Call, None] = {}
        """In the order in which they came; a call waits once, however much of its message comes meanwhile."""

    @property
    def granted_bytes(self) -> int:
        return self._granted

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def ask(self, call: Call) -> None:
        """Let the rest of a message come, now or later."""
        if self._granted >= MAX_GRANTED_BYTES:
            self._waiting[call] = None
        else:
            self._give(call)

    def _give(self, call: Call) -> None:
        assert call.reader is not None
        size = call.reader.missing_bytes - call.stream.receive_window
        if size > 0:
            call.granted += size
            self._granted += size
            self._http2.grant(call.stream, size)

    def release(self, call: Call) -> bool:
        """A message is complete, or its call is over; returns whether others were given room."""
        self._waiting.pop(call, None)
        if not call.granted:
            return False
        self._granted -= call.granted
        call.granted = 0
        before = self._granted
        while self._waiting and self._granted < MAX_GRANTED_BYTES:
            waiting = next(iter(self._waiting))
            del self._waiting[waiting]
            self._give(waiting)
        return self._granted > before

    def refill(self, call: Call, size: int) -> None:
        """Make the room of a stream as large as it was at first: what came is used up."""
        if (used := size - call.stream.receive_window) > 0:
            self._http2.grant(call.stream, used)
