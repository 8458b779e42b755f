"""Drops the files of a server from memory, so that its next reads come from the disk. Linux only, as root.

Mapped pages stay in the page cache whatever the kernel is told about the file. So the kernel first pages out the mappings of
the server (process_madvise), and then drops the files (posix_fadvise).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

MADV_PAGEOUT = 21
SYS_PIDFD_OPEN, SYS_PROCESS_MADVISE = 434, 440
_libc = ctypes.CDLL(None, use_errno=True)


class ColdFailed(RuntimeError):
    """The kernel refused, or the pages stayed in memory."""


class _Range(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


def put_out_of_memory(pids: Iterable[int], directory: Path) -> float:
    """Write back and drop every file below `directory`; returns the share of its bytes that stayed in memory."""
    files = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    for path in files:
        with suppress(FileNotFoundError), path.open("rb") as file:
            os.fsync(file.fileno())
    for pid in pids:
        _page_out(pid, directory)
    for path in files:
        with suppress(FileNotFoundError), path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return _share_in_memory(files)


def mappings(maps: str, directory: Path) -> Iterator[tuple[int, int]]:
    """Start and size of what /proc/PID/maps says is mapped from below `directory`.

    >>> line = "7f0000001000-7f0000003000 rw-s 00000000 fe:00 42    /data/store/commitlog/0"
    >>> list(mappings(line, Path("/data/store")))
    [(139637976731648, 8192)]
    """
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and Path(fields[5]).is_relative_to(directory):
            start, _, end = fields[0].partition("-")
            yield int(start, 16), int(end, 16) - int(start, 16)


def _page_out(pid: int, directory: Path) -> None:
    handle = _libc.syscall(SYS_PIDFD_OPEN, pid, 0)
    if handle < 0:
        raise ColdFailed(f"process {pid} cannot be opened: {os.strerror(ctypes.get_errno())}")
    try:
        for start, size in mappings(Path(f"/proc/{pid}/maps").read_text(), directory.resolve()):
            part = _Range(start, size)
            done = _libc.syscall(SYS_PROCESS_MADVISE, handle, ctypes.byref(part), 1, MADV_PAGEOUT, 0)
            if done < 0 and ctypes.get_errno() != 0:
                raise ColdFailed(f"mappings of process {pid} stay in memory: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(handle)


def _share_in_memory(files: list[Path]) -> float:
    """By util-linux's fincore; -1 without it."""
    tool = shutil.which("fincore")
    if tool is None:
        return -1.0
    there = [path for path in files if path.exists()]
    stored = sum(path.stat().st_blocks * 512 for path in there)
    command = [tool, "--bytes", "--noheadings", "--output", "RES", *map(str, there)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return sum(map(int, done.stdout.split())) / max(1, stored)
