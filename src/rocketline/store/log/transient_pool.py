"""A pool of buffers of a log file's size, locked in RAM, that messages are written to before they go to a file.

All memory is taken when the store opens, so that later nothing can be missing. The owner thread borrows a buffer for each
new log file; the thread that commits the file's last byte gives it back. The buffer given back last is lent first: its pages
are the likeliest to be in the processor's cache.
"""

from __future__ import annotations

import logging
import mmap
from collections import deque
from contextlib import suppress

from rocketline.errors import StoreError
from rocketline.store.files.mapping import POPULATE, advise, anonymous_map
from rocketline.store.files.memory_lock import PageLocks
from rocketline.system.processes import total_memory_bytes

log = logging.getLogger(__name__)

_FEW = 0.4
"""Share of free buffers below which the pool says that it runs low."""


class TransientPool:
    def __init__(self, count: int, buffer_bytes: int) -> None:
        self._count = count
        needed = count * buffer_bytes
        if needed > total_memory_bytes():
            raise StoreError(
                f"a transient store pool of {count} buffers of {buffer_bytes} bytes needs {needed} bytes, this machine has "
                f"{total_memory_bytes()}: lower transientStorePoolSize or mappedFileSizeCommitLog"
            )
        locks = PageLocks(f"the transient store pool ({needed} bytes)")
        self._maps = [_allocate(buffer_bytes) for _ in range(count)]
        self._free = deque(memoryview(mapped) for mapped in self._maps)
        for mapped, view in zip(self._maps, self._free):
            if not locks.lock(view, 0, buffer_bytes):
                _populate(mapped)
        self.is_locked = not locks.is_refused

    @property
    def free_count(self) -> int:
        return len(self._free)

    def borrow(self) -> memoryview | None:
        """A buffer, with whatever its last user left in it; None when all are in use."""
        try:
            buffer = self._free.popleft()
        except IndexError:
            return None
        if len(self._free) < self._count * _FEW:
            log.warning("the transient store pool has only %d of %d buffers left", len(self._free), self._count)
        return buffer

    def give_back(self, buffer: memoryview) -> None:
        self._free.appendleft(buffer)

    def close(self) -> None:
        """Let go of the memory; what is still lent out goes with its last user."""
        while self._free:
            self._free.pop().release()
        for mapped in self._maps:
            with suppress(BufferError):
                mapped.close()


def _allocate(size: int) -> mmap.mmap:
    try:
        return anonymous_map(size)
    except OSError as error:
        raise StoreError(
            f"cannot allocate {size} bytes for the transient store pool: {error.strerror}; lower transientStorePoolSize or "
            "mappedFileSizeCommitLog"
        ) from error


def _populate(mapped: mmap.mmap) -> None:
    """Have the memory now, also where it cannot be locked; kernels before 5.14 give it page by page as it is written."""
    with suppress(OSError, ValueError):
        advise(mapped, POPULATE, 0, len(mapped))
