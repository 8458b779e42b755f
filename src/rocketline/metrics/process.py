"""CPU time, memory and open files of this process, under the names that all Prometheus clients use."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

from rocketline.metrics.families import Family, counter, gauge

PROC = Path("/proc")
_START_TIME, _RESIDENT_PAGES = 19, 21
"""Field numbers in /proc/PID/stat after the name of the command, which may contain anything."""


def process_families() -> Iterator[Family]:
    cpu = counter("process_cpu_seconds_total", "User and system time in seconds.")
    cpu.add(time.process_time())
    yield cpu
    try:
        fields = (PROC / "self" / "stat").read_text().rpartition(")")[2].split()
        booted_s = int((PROC / "stat").read_text().partition("\nbtime ")[2].split(None, 1)[0])
        open_files = len(os.listdir(PROC / "self" / "fd"))
        ticks, pages = int(fields[_START_TIME]), int(fields[_RESIDENT_PAGES])
    except (OSError, ValueError, IndexError):
        return  # not Linux
    for name, help, value in (
        (
            "start_time_seconds",
            "Start of the process, seconds since 1970.",
            booted_s + ticks / os.sysconf("SC_CLK_TCK"),
        ),
        ("resident_memory_bytes", "Resident memory in bytes.", pages * mmap.PAGESIZE),
        ("open_fds", "Open file descriptors.", open_files),
    ):
        family = gauge(f"process_{name}", help)
        family.add(value)
        yield family
