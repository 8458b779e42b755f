"""Locking pages in RAM, so that the system never swaps them out.

How much a process may lock is limited (RLIMIT_MEMLOCK). Locking is optional: at the first refusal one warning says how to
allow it, and everything works on without it. Unmapping memory unlocks it.
"""

from __future__ import annotations

import ctypes
import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from rocketline.store.files.mapped_file import PAGE_BYTES
from rocketline.system.libc import LIBC, last_error
from rocketline.system.processes import lockable_memory

log = logging.getLogger(__name__)


def _call(name: str) -> Callable[[int, int], int]:
    """A function of the C library; where there is none, one that refuses."""
    if LIBC is None:
        return _refuse
    found = getattr(LIBC, name)
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    found.restype = ctypes.c_int
    return cast("Callable[[int, int], int]", found)


def _refuse(address: int, size: int) -> int:
    ctypes.set_errno(errno.ENOSYS)
    return -1


_lock, _unlock = _call("mlock"), _call("munlock")


class PageLocks:
    """Locks and unlocks ranges of memory until the system refuses."""

    def __init__(self, purpose: str) -> None:
        self.is_refused = False
        self._purpose = purpose

    def lock(self, view: memoryview, start: int, end: int) -> bool:
        """Fault in and lock the pages of these bytes; False when they are not locked."""
        if self.is_refused or start >= end:
            return False
        if _lock(_address(view, start), end - start) == 0:
            return True
        self.is_refused = True
        self._explain(last_error().strerror or "unknown reason")
        return False

    def unlock(self, view: memoryview, start: int, end: int) -> None:
        if start < end:
            # Memory that was released meanwhile is not locked any more.
            with suppress(ValueError):
                _unlock(_address(view, start), end - start)

    def _explain(self, reason: str) -> None:
        log.warning(
            "cannot lock %s in memory: %s. RLIMIT_MEMLOCK allows %s bytes; raise it with `ulimit -l`, or with LimitMEMLOCK= "
            "in a systemd unit. Continuing without locking",
            self._purpose,
            reason,
            lockable_memory(),
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
