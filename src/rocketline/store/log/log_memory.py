"""The memory of the commit log: ahead of the writer it is there before it is needed, far behind it is given back.

Ahead: blocks are reserved, so that a full disk is an error and no signal; pages are faulted in by a thread, a few MiB
before they are written, so that no append waits for them; the next file is made by the same thread while the last quarter of
this one is written. Left to the first touch, the kernel makes as many pages at once as its read-ahead has (`read_ahead_kb`,
often 8 MiB), and may take 20 ms for it. Where memory is locked, the owner does so in small steps. Records that are staged in
buffers need blocks, but none of these pages.
"""

from __future__ import annotations

from functools import partial
from math import inf

from rocketline.clock import Clock
from rocketline.errors import DiskFull
from rocketline.protocol.record_layout import BLANK_BYTES
from rocketline.store.config import StoreConfig
from rocketline.store.files.memory_lock import LockedWindow
from rocketline.store.files.segment import Segment
from rocketline.store.files.segmented_file import SegmentedFile
from rocketline.store.log.staging import Staging

RESERVE_BYTES = 4 << 20
WARM_BYTES = 1 << 20
"""At the start of a file, before it is used."""
WARM_AHEAD_BYTES = 2 << 20
QUICK_S = 0.1
"""A writer that uses up these pages in less time, 20 MiB/s, gets the next ones at once. In small steps the thread would wait
for the interpreter between them, and the writer would overtake it."""
LOCK_STEP_BYTES = 128 << 10
"""Faulting pages in takes half a microsecond per KiB, during which the owner does nothing else."""
RESIDENT_BYTES = 16 << 20
"""How much of the log's end stays in this process's memory; the page cache keeps more."""

_FORGET_BYTES = 64 << 20


class LogMemory:
    """Owner thread only, except `forget_before`."""

    def __init__(self, file: SegmentedFile, config: StoreConfig, clock: Clock) -> None:
        self.staging: Staging | None = None
        self._file = file
        self._warm = config.warm
        self._locked = LockedWindow("the end of the log") if config.lock_memory else None
        self._clock = clock
        self._base = -1
        self._warmed = 0
        self._asked_at = -inf

    def ahead(self, segment: Segment, wrote: int, end: int) -> tuple[memoryview, int]:
        """The memory to write a file through, and up to which log offset: `end` or somewhat further.

        DiskFull when there are no blocks, StoreBusy when there must be a buffer and is none.
        """
        position = end - segment.base
        segment.reserve(min(position + BLANK_BYTES, segment.size), RESERVE_BYTES)
        if segment.base != self._base:
            self._base = segment.base
            self._warmed = 0
        buffer = self.staging.begin(segment) if self.staging is not None else None
        limit = min(segment.reserved, segment.size - BLANK_BYTES)
        if buffer is None and self._locked is not None:
            limit = min(limit, max(position, wrote - segment.base + LOCK_STEP_BYTES))
            self._locked.move(segment.open(), wrote - segment.base, limit)
        elif buffer is None and self._warm:
            limit = self._warm_ahead(segment, wrote - segment.base, position, limit)
        return segment.open() if buffer is None else buffer, segment.base + limit

    def _warm_ahead(self, segment: Segment, written: int, position: int, limit: int) -> int:
        """Have more pages faulted in; the owner may write up to where they were asked for the last time."""
        writable = max(position, min(self._warmed, limit))
        try:
            segment.reserve(min(writable + WARM_AHEAD_BYTES, segment.size), RESERVE_BYTES)
        except DiskFull:
            return limit  # there is this much yet
        end = min(writable + WARM_AHEAD_BYTES, segment.size)
        if self._warmed < end:
            now = self._clock.monotonic()
            is_quick, self._asked_at = now - self._asked_at < QUICK_S, now
            self._file.run_in_background(partial(segment.warm, at_once=is_quick), max(self._warmed, written), end)
            self._warmed = end
        return writable

    def start_over(self) -> None:
        """Writing goes on somewhere else."""
        self._base = -1

    def prepare_first(self, wrote: int) -> None:
        """Have the first file of a log without any made in the background."""
        if not len(self._file):
            self._file.prepare_next(self._make_ready, wrote)

    def prepare_next(self, segment: Segment, end: int) -> None:
        """Have the next file made in the background when this one, written up to `end`, is nearly full."""
        if segment.next_base - end < segment.size // 4:
            self._file.prepare_next(self._make_ready)

    def _make_ready(self, segment: Segment) -> None:
        """Spare the roll to a file the wait for its first blocks and pages; runs in the background."""
        segment.reserve(1, RESERVE_BYTES)
        if self._warm and self.staging is None:
            segment.warm(0, min(WARM_BYTES, segment.reserved))

    def forget_before(self, wrote: int) -> None:
        """Give back the memory of all but the log's end; safe in the flusher thread."""
        end = wrote - RESIDENT_BYTES
        for segment in self._file:
            # In steps, because the interpreter stands still during each.
            for position in range(0, min(segment.size, end - segment.base), _FORGET_BYTES):
                segment.forget(position, min(position + _FORGET_BYTES, end - segment.base, segment.size))

    def close(self) -> None:
        if self._locked is not None:
            self._locked.clear()
