"""Lets a worker keep freed memory between batches.

By default the C library returns large blocks to the kernel when they are freed, and gets new ones for the next batch:
each page then costs a page fault, which takes longer than decoding the rows in it.
"""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""

KEPT_BYTES = 64 << 20
_LARGEST_PIECE = 32 << 20


@cache
def keep_memory() -> None:
    """Let this process keep up to `KEPT_BYTES` of freed memory; does nothing without glibc."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    set_option(_TRIM_THRESHOLD, KEPT_BYTES)
    set_option(_MMAP_THRESHOLD, _LARGEST_PIECE)
