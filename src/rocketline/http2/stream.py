"""One stream of a connection: its windows, and what waits for room in them."""

from __future__ import annotations

from collections import deque
from typing import Any


class Stream:
    """A request and its answer."""

    __slots__ = (
        "expected", "id", "is_local_ended", "is_remote_ended", "outbox", "owner", "queued_bytes", "receive_window",
        "send_window", "trailers",
    )  # fmt: skip

    def __init__(self, stream_id: int, receive_window: int, send_window: int) -> None:
        self.id = stream_id
        self.receive_window = receive_window
        self.send_window = send_window
        self.is_remote_ended = False
        self.is_local_ended = False
        """Whether the end was handed over; it may still be in the outbox."""
        self.expected: int | None = None
        """Bytes of the body that the request says it has, of which some came."""
        self.outbox: deque[memoryview] | None = None
        """Data that waits for room in a window."""
        self.queued_bytes = 0
        """How much that is; after the end of the stream, how much was never sent."""
        self.trailers: bytes | None = None
        """The header block that follows it."""
        self.owner: Any = None
        """What the application keeps here."""
