"""What one connection may cost, and what connections may cost together before anybody knows who they are.

Where accounts are asked for, a connection is a stranger's until one of its requests has passed the guard. A first message
may be as large as any other, so what is limited is the sum: the pieces of frames that strangers have sent fit into one
budget, and whoever holds most of it makes room. Headers are short, and a frame is no longer than a message.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from rocketline.protocol.connection import MAX_FRAME_BYTES, MAX_HEADER_BYTES

log = logging.getLogger(__name__)

STRANGERS_HEADER_BYTES = 64 << 10
MAX_UNFINISHED_BYTES = 64 << 20
"""Of all strangers together."""
FREE_BYTES = 4096
"""Of each, which are not counted."""
SLOWEST_BYTES = 16 << 10
"""By so much a frame must grow in the time after which a silent connection is idle: 16 KiB in two minutes."""


@dataclass(frozen=True)
class Limits:
    """What one connection may cost."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    max_header_bytes: int = MAX_HEADER_BYTES
    max_waiting: int = 8192
    """Requests of the peer that wait for their answer (long polls, flushes)."""
    max_calls: int = 65535
    """Our own requests that wait for the peer."""
    write_high_water_bytes: int = 8 * 1024 * 1024
    write_stall_s: float = 30.0
    idle_s: float = 120.0


DEFAULT_LIMITS = Limits()


class Stranger(Protocol):
    remote: str

    def abort(self) -> None: ...


class Strangers:
    """Those of one server."""

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.max_header_bytes = STRANGERS_HEADER_BYTES
        self._unfinished: dict[Stranger, int] = {}
        self._total = 0

    def note(self, stranger: Stranger, size: int) -> None:
        """So much of a frame has come that is not complete."""
        before = self._unfinished.pop(stranger, 0)
        self._total -= before
        if size <= FREE_BYTES:
            return
        self._unfinished[stranger] = size
        self._total += size
        while self._total > MAX_UNFINISHED_BYTES:
            largest = max(self._unfinished, key=self._unfinished.__getitem__)
            log.warning(
                "closing %s: strangers have sent %d bytes of frames that are not complete, and it most of them",
                largest.remote, self._total,
            )  # fmt: skip
            self._total -= self._unfinished.pop(largest)
            largest.abort()

    def forget(self, stranger: Stranger) -> None:
        """It is none any more."""
        self._total -= self._unfinished.pop(stranger, 0)


class Drips:
    """Finds peers that hold a connection by sending a frame byte by byte, which is neither silent nor of use."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._frames: dict[object, tuple[float, int, int]] = {}
        """Since when a frame has not grown enough, its size then, and its size at the last look."""

    def is_dripping(self, peer: object, size: int, now: float) -> bool:
        """A look, now and then: `size` is what has come of a frame that is not complete. Less than at the last look is
        another frame."""
        since, first, last = self._frames.get(peer, (now, size, size))
        if not size or size < last or size >= first + SLOWEST_BYTES:
            since, first = now, size
        if size:
            self._frames[peer] = since, first, size
        else:
            self.forget(peer)
        return now - since >= self._limit_s

    def forget(self, peer: object) -> None:
        self._frames.pop(peer, None)
