"""Memory of a worker that makes one large batch after the other.

The C library gives large pieces back to the kernel as soon as they are free, and gets them again for the next batch, empty:
each page then costs a fault, which is more than decoding the rows in it. A worker keeps some instead.
"""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of glibc's mallopt."""

KEPT_BYTES = 64 << 20
_LARGEST_PIECE = 32 << 20


@cache
def keep_memory() -> None:
    """From now on this process keeps freed memory, up to `KEPT_BYTES`; without glibc nothing changes."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    set_option(_TRIM_THRESHOLD, KEPT_BYTES)
    set_option(_MMAP_THRESHOLD, _LARGEST_PIECE)
