"""Limits and memory of this process and this machine."""

from __future__ import annotations

import mmap
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

_resource: ModuleType | None
try:
    import resource as _resource
except ImportError:  # Windows
    _resource = None

PROC = Path("/proc")
_START_TIME, _RESIDENT_PAGES = 19, 21
"""Field numbers in /proc/PID/stat after the name of the command, which may contain anything."""

UNKNOWN_MEMORY = sys.maxsize
"""Where the system does not tell, nothing is refused for lack of memory before it is really missing."""


def allow_many_files() -> None:
    """Raise this process's limit of open files as far as allowed: every connection and every mapped file needs one."""
    if _resource is None:
        return
    soft, hard = _resource.getrlimit(_resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS says that there is no limit, and refuses to go so far.
        with suppress(ValueError, OSError):
            _resource.setrlimit(_resource.RLIMIT_NOFILE, (hard, hard))


def lockable_memory() -> str:
    """How many bytes of memory this process may lock, as words of a log line."""
    if _resource is None:
        return "an unknown number of"
    soft = _resource.getrlimit(_resource.RLIMIT_MEMLOCK)[0]
    return "any number of" if soft == _resource.RLIM_INFINITY else str(soft)


def total_memory_bytes() -> int:
    """The memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN_MEMORY


def boot_id() -> str:
    """Another text after each start of the machine; "" where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class ProcessFigures(NamedTuple):
    """What the system tells about this process."""

    started_s: float
    """Since 1970."""
    memory_bytes: int
    open_files: int


def own_figures() -> ProcessFigures | None:
    """Start, resident memory and open files of this process; None where the system does not tell."""
    try:
        fields = (PROC / "self" / "stat").read_text().rpartition(")")[2].split()
        booted_s = int((PROC / "stat").read_text().partition("\nbtime ")[2].split(None, 1)[0])
        open_files = len(os.listdir(PROC / "self" / "fd"))
        ticks, pages = int(fields[_START_TIME]), int(fields[_RESIDENT_PAGES])
    except (OSError, ValueError, IndexError):
        return None
    return ProcessFigures(booted_s + ticks / os.sysconf("SC_CLK_TCK"), pages * mmap.PAGESIZE, open_files)


def memory_of(pid: int) -> int | None:
    """Resident bytes of a process now; None where the system does not tell."""
    try:
        status = (PROC / str(pid) / "status").read_text()
    except OSError:
        return None
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else None
