"""Limits and memory of this process and this machine."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import ModuleType

_resource: ModuleType | None
try:
    import resource as _resource
except ImportError:  # Windows
    _resource = None

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
