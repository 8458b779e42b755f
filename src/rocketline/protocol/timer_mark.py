"""How far timers are: the answer to 60, and the content of `config/timercheck`.

0  last read ms   8  timer log flushed to   16  queue offset   24  the master's queue offset   32  state version
40  changed ms   48  change count
"""

from __future__ import annotations

import struct

import msgspec

_FIELDS = struct.Struct(">7q")
MARK_BYTES = _FIELDS.size


class TimerMark(msgspec.Struct, frozen=True):
    """State of the timer files at one moment."""

    read_ms: int = 0
    """Slots before this time are delivered."""
    flushed: int = 0
    """Timer-log entries before this position are on disk and in the wheel."""
    queue_offset: int = 0
    """Messages of the timer queue before this offset have their entry."""
    master_queue_offset: int = 0
    state_version: int = 0
    changed_ms: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        return _FIELDS.pack(*msgspec.structs.astuple(self))

    @staticmethod
    def decode(data: bytes) -> TimerMark | None:
        """None for bytes that are no mark."""
        if len(data) < MARK_BYTES:
            return None
        mark = TimerMark(*_FIELDS.unpack_from(data))
        return mark if min(mark.read_ms, mark.flushed, mark.queue_offset) >= 0 else None
