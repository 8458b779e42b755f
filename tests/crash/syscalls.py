"""The flushes and reservations of a broker's process, counted and troubled.

Every `os.fsync`, `os.fdatasync` and `os.posix_fallocate` of the process goes through here, so what is tested is the code
that runs in production, down to the system call, and not a disk of our own.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

import msgspec

from rocketline.store.files import file_system

from .plan import Troubles


class Synced(Protocol):
    """Told of each flush instead of the disk."""

    def synced(self, fd: int, path: str, started: float) -> None: ...


class Syscalls:
    def __init__(self, troubles: Troubles, shadow: Synced | None = None) -> None:
        self.syncs: Counter[str] = Counter()
        """Flushes by path."""
        self.syncs_after_failure = 0
        """Flushes of the file whose flush failed, since then."""
        self.failed_empty = False
        """Whether that file had nothing in it yet."""
        self.on_loop: Counter[str] = Counter()
        """Flushes that the event loop itself waited for since the broker serves, by path."""
        self._serves = False
        self._troubles = troubles
        self._shadow = shadow
        self._random = Random(troubles.delays_seed)
        self._log_syncs = 0
        self._reservations = 0
        self._failed = -1
        self._has_space = True
        self._is_slow = troubles.from_start
        self._real_fsync, self._real_fdatasync = os.fsync, os.fdatasync
        self._real_fallocate = os.posix_fallocate

    def install(self) -> None:
        for name, replacement in (
            ("fsync", partial(self._sync, self._real_fsync)),
            ("fdatasync", partial(self._sync, self._real_fdatasync)),
            ("posix_fallocate", self._reserve),
        ):
            setattr(os, name, replacement)
        # Only syncs of single files are counted: flushing a whole file system is switched off.
        setattr(file_system, "KINDS", frozenset())

    def watch_loop(self) -> None:
        """From now on no flush should hold up the event loop, which is the main thread's."""
        self._serves = True

    def slow_down(self) -> None:
        """From now on flushes take as long as planned."""
        self._is_slow = True

    def speed_up(self) -> None:
        """From now on flushes take as long as they take."""
        self._is_slow = False

    def have_space(self, has_space: bool) -> None:
        self._has_space = has_space

    def fail_next_flush(self) -> None:
        """Of a log file."""
        self._troubles = msgspec.structs.replace(self._troubles, sync_error_at=self._log_syncs + 1)

    def heal(self) -> None:
        self._has_space = True
        self._troubles = Troubles()

    def _sync(self, real: Callable[[int], None], fd: int) -> None:
        started = time.monotonic()
        path = os.readlink(f"/proc/self/fd/{fd}")
        self.syncs[path] += 1
        if self._serves and threading.current_thread() is threading.main_thread():
            self.on_loop[path] += 1
        low, high = self._troubles.sync_delay_ms
        if high and self._is_slow and self._troubles.slow_part in path:
            time.sleep(self._random.uniform(low, high) / 1000)
        if self._failed >= 0 and os.path.sameopenfile(fd, self._failed):
            self.syncs_after_failure += 1
        if "/commitlog/" in path:
            self._log_syncs += 1
            if self._log_syncs == self._troubles.sync_error_at:
                # Kept open, so that a file made in its place cannot get its inode.
                self._failed = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self.failed_empty = not any(os.pread(self._failed, 8, 0))
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self._shadow is not None:
            self._shadow.synced(fd, path, started)
        else:
            real(fd)

    def _reserve(self, fd: int, offset: int, length: int) -> None:
        self._reservations += 1
        if self._reservations == self._troubles.no_space_at:
            self._has_space = False
        if not self._has_space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._real_fallocate(fd, offset, length)
