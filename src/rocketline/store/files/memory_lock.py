"""Locking pages in RAM, so that the system never swaps them out.

How much a process may lock is limited (RLIMIT_MEMLOCK). Locking is optional: at the first refusal one warning says how to
allow it, and everything works on without it. Unmapping memory unlocks it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
from contextlib import suppress

from rocketline.store.files.mapped_file import PAGE_BYTES

log = logging.getLogger(__name__)

_LIBC = ctypes.CDLL(None, use_errno=True)
for _call in (_LIBC.mlock, _LIBC.munlock):
    _call.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    _call.restype = ctypes.c_int


class PageLocks:
    """Locks and unlocks ranges of memory until the system refuses."""

    def __init__(self, purpose: str) -> None:
        self.is_refused = False
        self._purpose = purpose

    def lock(self, view: memoryview, start: int, end: int) -> bool:
        """Fault in and lock the pages of these bytes; False when they are not locked."""
        if self.is_refused or start >= end:
            return False
        if _LIBC.mlock(_address(view, start), end - start) == 0:
            return True
        self.is_refused = True
        self._explain(ctypes.get_errno())
        return False

    def unlock(self, view: memoryview, start: int, end: int) -> None:
        if start < end:
            # Memory that was released meanwhile is not locked any more.
            with suppress(ValueError):
                _LIBC.munlock(_address(view, start), end - start)

    def _explain(self, code: int) -> None:
        soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        allowed = "any number of" if soft == resource.RLIM_INFINITY else str(soft)
        log.warning(
            "cannot lock %s in memory: %s. RLIMIT_MEMLOCK allows %s bytes; raise it with `ulimit -l`, or with LimitMEMLOCK= "
            "in a systemd unit. Continuing without locking",
            self._purpose,
            os.strerror(code),
            allowed,
        )


class LockedWindow:
    """Keeps the part of a file that is written next locked; moves as the file fills."""

    def __init__(self, purpose: str) -> None:
        self._locks = PageLocks(purpose)
        self._view = memoryview(b"")
        self._start = 0
        self._end = 0

    def move(self, view: memoryview, start: int, end: int) -> None:
        """Lock the bytes from `start` to `end`, and unlock those before `start`."""
        locks = self._locks
        start = start // PAGE_BYTES * PAGE_BYTES
        if view is not self._view:
            self.clear()
            self._view, self._start, self._end = view, start, start
        locks.unlock(view, self._start, min(start, self._end))
        locks.lock(view, max(start, self._end), end)
        self._start, self._end = start, max(end, self._end)
        if locks.is_refused:
            self.clear()

    def clear(self) -> None:
        """Unlock everything."""
        self._locks.unlock(self._view, self._start, self._end)
        self._view = memoryview(b"")
        self._start = self._end = 0


def _address(view: memoryview, position: int) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view, position))
