"""Mapping files into memory without keeping a descriptor for each.

Python's mmap keeps a descriptor as long as it lives (3.13 has an option), and ten thousand queues would need as many. The
C library's `mmap` needs it only during the call. The memory is unmapped with the last slice of it: a chunk that is being
sent stays valid after its file was closed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from pathlib import Path

_PROTECTION = 0x1 | 0x2  # read, write
_SHARED = 0x01

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FAILED = ctypes.c_void_p(-1).value

_DEFAULT_MAX_MAPS = 65_530
"""Linux's default limit for a process."""


class FileMap:
    """A shared mapping of a whole file; `buffer` and its slices keep it alive."""

    __slots__ = ("_address", "_size", "buffer")

    def __init__(self, fd: int, size: int) -> None:
        address = _libc.mmap(None, size, _PROTECTION, _SHARED, fd, 0)
        if address == _FAILED:
            raise _error()
        owner = (ctypes.c_ubyte * size).from_address(address)
        weakref.finalize(owner, _libc.munmap, address, size).atexit = False
        self._address = address
        self._size = size
        self.buffer = memoryview(owner).cast("B")

    def advise(self, advice: int, start: int, end: int) -> None:
        """Call `madvise` for the pages of a range; OSError when the kernel does not know the advice.

        Any thread, also after the file was closed.
        """
        memory = self.buffer  # keeps the memory mapped during the call
        if not memory:
            return
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        if _libc.madvise(self._address + first, min(end, self._size) - first, advice):
            raise _error()


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def map_limit() -> int:
    """How many mappings this process may have."""
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return _DEFAULT_MAX_MAPS
