"""The clock for intervals: one that goes on while the machine sleeps, where the system has one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial


def steady_clock() -> Callable[[], float]:
    """A function that returns seconds. A virtual machine that was paused must find that its leases are over."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None and sys.platform == "darwin":
        clock = getattr(time, "CLOCK_MONOTONIC", None)  # goes on there, other than time.monotonic
    return time.monotonic if clock is None else partial(time.clock_gettime, clock)
