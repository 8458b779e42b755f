"""What a process that runs many short tasks pays for its memory.

By default the C library returns large blocks to the kernel when they are freed, and gets new ones for the next batch:
each page then costs a page fault, which takes longer than decoding the rows in it. And after each task Spark's workers
collect all garbage: with Arrow and Spark loaded that takes 35 ms, as long as reading a hundred thousand rows.
"""

from __future__ import annotations

import ctypes
import gc
import os
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


@cache
def spare_collections() -> None:
    """Have collections of garbage pass over what is loaded, in a worker that Spark uses for one task after the other."""
    if "SPARK_REUSE_WORKER" in os.environ:
        gc.collect()
        gc.freeze()
