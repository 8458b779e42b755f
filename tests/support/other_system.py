"""A pytest plugin that takes away what Windows and macOS do not have: `python -m pytest -p tests.support.other_system`.

It must be loaded before rocketline. What other systems have instead is put in its place: Windows' locks, and an event loop
that knows no signals and no pipes.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import mmap
import os
import select
import shutil
import signal
import sys
import time
from types import ModuleType
from typing import Any, NoReturn

MISSING_MODULES = ("fcntl", "resource", "uvloop")
MISSING_NAMES: dict[Any, tuple[str, ...]] = {
    os: (
        "fdatasync", "posix_fadvise", "posix_fallocate", "pread", "pwrite", "register_at_fork", "statvfs", "sysconf",
        "O_CLOEXEC", "O_DIRECTORY", "SEEK_DATA", "SEEK_HOLE", "fork",
    ),
    signal: ("pthread_kill", "SIGUSR1", "SIGUSR2"),
    select: ("poll",),
    time: ("CLOCK_BOOTTIME",),
    mmap: ("MADV_DONTNEED", "MADV_RANDOM", "MAP_ANONYMOUS", "MAP_PRIVATE"),
}  # fmt: skip


def _locking() -> ModuleType:
    """Windows' module for locks, on those of this system."""
    unlock, lock = 0, 2

    def locking(fd: int, mode: int, size: int) -> None:
        # Windows lets a reader take it too; here only a shared lock is possible, which the holder's keeps out as well.
        take = fcntl.LOCK_EX if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_RDWR else fcntl.LOCK_SH
        try:
            fcntl.lockf(fd, take | fcntl.LOCK_NB if mode == lock else fcntl.LOCK_UN, size)
        except BlockingIOError as error:
            raise PermissionError(*error.args) from error

    module = ModuleType("msvcrt")
    vars(module).update(LK_UNLCK=unlock, LK_NBLCK=lock, locking=locking)
    return module


def _no_such_call(*_: object) -> NoReturn:
    raise NotImplementedError


class _NoLibrary(ctypes.CDLL):
    def __init__(self, name: str | None, *args: Any, **options: Any) -> None:
        if name is None:
            raise TypeError("this system has no library without a name")
        super().__init__(name, *args, **options)


def _take_away() -> None:
    statvfs = os.statvfs

    def disk_usage(path: Any) -> tuple[int, int, int]:
        found = statvfs(path)
        total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
        return total, total - free, free

    shutil.disk_usage = disk_usage  # type: ignore[assignment]
    sys.modules["msvcrt"] = _locking()
    for name in MISSING_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in MISSING_NAMES.items():
        for name in names:
            delattr(module, name)
    ctypes.CDLL = _NoLibrary  # type: ignore[misc]
    loop: Any = asyncio.SelectorEventLoop
    loop.add_signal_handler = loop.add_reader = _no_such_call


if any(name == "rocketline" or name.startswith("rocketline.") for name in sys.modules):
    raise RuntimeError("rocketline is imported already: load this plugin first, with -p")
_take_away()
