"""Mapping files into memory without keeping a descriptor for each.

Python's mmap keeps a descriptor as long as it lives (3.13 has an option), and ten thousand queues would need as many. The
C library's `mmap` needs it only during the call. The memory is unmapped with the last slice of it: a chunk that is being
sent stays valid after its file was closed.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from pathlib import Path

from rocketline.system.libc import LIBC, last_error

_PROTECTION = 0x1 | 0x2  # read, write
_SHARED = 0x01

_FAILED = ctypes.c_void_p(-1).value

RANDOM: int | None = getattr(mmap, "MADV_RANDOM", None)
FORGET: int | None = getattr(mmap, "MADV_DONTNEED", None)
POPULATE = 23
"""Advice for ranges of memory; None, which is ignored, where the system has no such advice. The last one is
MADV_POPULATE_WRITE, which Python does not name: Linux has it since 5.14, other systems refuse it."""

if LIBC is not None:
    LIBC.mmap.restype = ctypes.c_void_p
    LIBC.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    )  # fmt: skip
    LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

_DEFAULT_MAX_MAPS = 65_530
"""Linux's default limit for a process."""


class FileMap:
    """A shared mapping of a whole file; `buffer` and its slices keep it alive."""

    __slots__ = ("_address", "_size", "buffer")

    def __init__(self, fd: int, size: int) -> None:
        self._size = size
        self._address = 0
        if LIBC is None:
            # Keeps a descriptor, and takes no advice. Fine for a development machine.
            self.buffer = memoryview(mmap.mmap(fd, size))
            return
        address = LIBC.mmap(None, size, _PROTECTION, _SHARED, fd, 0)
        if address == _FAILED:
            raise last_error()
        owner = (ctypes.c_ubyte * size).from_address(address)
        weakref.finalize(owner, LIBC.munmap, address, size).atexit = False
        self._address = address
        self.buffer = memoryview(owner).cast("B")

    def advise(self, advice: int | None, start: int, end: int) -> None:
        """Call `madvise` for the pages of a range; OSError when the kernel does not know the advice.

        Any thread, also after the file was closed.
        """
        memory = self.buffer  # keeps the memory mapped during the call
        if LIBC is None or advice is None or not memory:
            return
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        if LIBC.madvise(self._address + first, min(end, self._size) - first, advice):
            raise last_error()


def advise(mapped: mmap.mmap, advice: int | None, start: int, size: int) -> None:
    """The same for a map of Python's."""
    if advice is not None and hasattr(mapped, "madvise"):
        mapped.madvise(advice, start, size)


def anonymous_map(size: int) -> mmap.mmap:
    """Memory of this process alone, from the system and not from the heap."""
    if hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size)


def map_limit() -> int:
    """How many mappings this process may have."""
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return _DEFAULT_MAX_MAPS
