"""Between the transient pool and the log files: what was written to buffers and is not in a file yet.

The owner thread writes records to the buffer of the current file. A commit copies what is new to the file, with a plain
write and not through the map, and only then may it be read: `committed` is the end of what readers see. Three ends follow
each other, wrote >= committed >= flushed.

- A commit copies in the order of the log and moves `committed` only behind what was copied, so files never have holes.
- A buffer still holds what its last user wrote; of a file that ended with a blank nothing after the blank is copied.
- A file that got no buffer is written through its map. Its bytes are in place at once, but count as committed only when
  everything before them is.
- A failed commit is final, as a failed sync is: the page cache may hold a part of it, and nobody knows which.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rocketline.errors import StoreBusy, StoreError
from rocketline.store.files.segment import Segment
from rocketline.store.log.transient_pool import TransientPool


@dataclass(slots=True)
class StagedFile:
    segment: Segment
    buffer: memoryview
    end: int
    """Nothing from here on is ever copied: the end of the file, or of the blank that closes it."""


class Staging:
    def __init__(self, pool: TransientPool, committed: int, committed_ms: int, must_have_buffer: bool = False) -> None:
        self.committed = committed
        """Everything below is in its file and may be read."""
        self.committed_ms = committed_ms
        """Store time of a message below `committed`, the last one or an earlier one."""
        self.on_full: Callable[[], None] = _nothing
        """Called by the owner after each roll, so that the full file's buffer comes back soon."""
        self._pool = pool
        self._must_have_buffer = must_have_buffer
        self.current: StagedFile | None = None
        """The file being written, when it has a buffer; for the owner thread."""
        self._begun = -1
        self._files: deque[StagedFile] = deque()
        self._committing = threading.Lock()
        self._failure: StoreError | None = None

    def begin(self, segment: Segment) -> memoryview | None:
        """The buffer to write a file to; None when there was none for it. StoreBusy when there must be one."""
        if segment.base != self._begun:
            buffer = self._pool.borrow()
            if buffer is None and self._must_have_buffer:
                raise StoreBusy(
                    f"the transient store pool has no free buffer for {segment.path}; it has one when a file is committed"
                )
            self._begun = segment.base
            self.current = None if buffer is None else StagedFile(segment, buffer, segment.next_base)
            if self.current is not None:
                self._files.append(self.current)
        return None if self.current is None else self.current.buffer

    def commit(self, end: int, store_ms: int) -> None:
        """Bring everything below `end` to the files; `store_ms` is the time of a message in there. Any thread."""
        with self._committing:
            if self._failure is not None:
                raise self._failure
            try:
                self._copy(end)
            except StoreError as error:
                self._failure = error
                raise
            self.committed = max(self.committed, end)
            # After the end it belongs to: whoever reads time, then end, never has a time too young for that end.
            self.committed_ms = max(self.committed_ms, store_ms)

    def _copy(self, end: int) -> None:
        # The owner may add a file meanwhile: no iteration, which would notice.
        files = self._files
        while files:
            staged = files[0]
            segment, base = staged.segment, staged.segment.base
            start, stop = max(self.committed, base), min(end, staged.end)
            if start < stop:
                segment.write(start - base, staged.buffer[start - base : stop - base])
            if end < segment.next_base:
                return
            self.committed = segment.next_base
            files.popleft()
            self._pool.give_back(staged.buffer)

    def close(self) -> None:
        self.current = None
        self._files.clear()
        self._pool.close()


def _nothing() -> None:
    pass
