"""CPU time, memory and open files of this process, under the names that all Prometheus clients use."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rocketline.metrics.families import Family, counter, gauge
from rocketline.system.processes import own_figures


def process_families() -> Iterator[Family]:
    cpu = counter("process_cpu_seconds_total", "User and system time in seconds.")
    cpu.add(time.process_time())
    yield cpu
    figures = own_figures()
    if figures is None:
        return
    for name, help, value in (
        ("start_time_seconds", "Start of the process, seconds since 1970.", figures.started_s),
        ("resident_memory_bytes", "Resident memory in bytes.", figures.memory_bytes),
        ("open_fds", "Open file descriptors.", figures.open_files),
    ):
        family = gauge(f"process_{name}", help)
        family.add(value)
        yield family
