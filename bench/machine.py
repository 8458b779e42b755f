"""Measurements of the machine: CPU time and memory of processes, load by others, disk and memory speed.

Figures of processes come from /proc (Linux only), so nothing here runs inside a measured server.
"""

from __future__ import annotations

import mmap
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
FSYNC_PROBES = 200
MEMCPY_BYTES = 64 << 20
_memcpy_source, _memcpy_target = bytearray(b"x") * MEMCPY_BYTES, bytearray(b"y") * MEMCPY_BYTES


@dataclass(frozen=True)
class Memory:
    """Resident bytes. `anonymous` is without mapped files, whose pages the kernel may drop at any time."""

    rss: int
    anonymous: int


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of all threads of these processes."""
    ticks = 0
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat").read_text()
        fields = stat[stat.rindex(")") + 2 :].split()  # the name before it may hold spaces
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_SECOND


def memory(pids: Iterable[int]) -> Memory:
    rss = anonymous = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        values = dict(line.split(":", 1) for line in lines if ":" in line)
        rss += int(values["VmRSS"].split()[0]) * 1024
        anonymous += int(values["RssAnon"].split()[0]) * 1024
    return Memory(rss, anonymous)


def process_tree(pid: int) -> list[int]:
    """The process and its descendants, so that a server started through a wrapper is counted whole."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # it ended while we looked
            parent = int(stat[stat.rindex(")") + 2 :].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    tree = [pid]
    for known in tree:
        tree += children.get(known, [])
    return tree


def busy_seconds() -> float:
    """Time all cores together were busy since boot, time stolen by the hypervisor included."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND


def busy_cores(seconds: float) -> float:
    """How many cores are busy on average over so many seconds."""
    began = busy_seconds()
    time.sleep(seconds)
    return (busy_seconds() - began) / seconds


def disk_flushes(directory: Path) -> int | None:
    """The number of flushes of the disk of `directory` since boot, by all processes; None if the kernel does not count."""
    device = os.stat(directory).st_dev
    return flushes_in(Path("/proc/diskstats").read_text(), os.major(device), os.minor(device))


def flushes_in(diskstats: str, major: int, minor: int) -> int | None:
    """The flush counter of a disk in /proc/diskstats; None for partitions and old kernels.

    >>> flushes_in(" 254 0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 4510091 17", 254, 0)
    4510091
    """
    for line in diskstats.splitlines():
        fields = line.split()
        if fields[:2] == [str(major), str(minor)] and len(fields) > 18:
            return int(fields[18])
    return None


def fsync_p50_us(directory: Path) -> float:
    """The median fdatasync of 1 KiB written into a preallocated file."""
    path = directory / "fsync.probe"
    block = os.urandom(1024)
    taken = []
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(fd, 0, 1024 * FSYNC_PROBES)
        os.fsync(fd)
        for probe in range(FSYNC_PROBES):
            os.pwrite(fd, block, 1024 * probe)
            began = time.perf_counter()
            os.fdatasync(fd)
            taken.append(time.perf_counter() - began)
    finally:
        os.close(fd)
        path.unlink()
    return statistics.median(taken) * 1e6


def memcpy_gb_per_s() -> float:
    """The best of five copies of 64 MiB."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        memoryview(_memcpy_target)[:] = _memcpy_source
        best = min(best, time.perf_counter() - began)
    return MEMCPY_BYTES / best / 1e9


def touch_memory(share: float = 0.6) -> None:
    """Use most of the free memory once. The host gives a virtual machine the pages it never used at 0.3 GB/s, and whoever
    writes more files would pay for that."""
    available = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    with mmap.mmap(-1, int(int(available.split()[1]) * 1024 * share)) as memory:
        for at in range(0, len(memory), mmap.PAGESIZE):
            memory[at] = 1


def describe(root: Path) -> dict[str, str]:
    """The machine and the code, for the head of a report."""
    return {
        "processor": _first_value("/proc/cpuinfo", "model name"),
        "cores": str(os.cpu_count()),
        "memory_gib": f"{int(_first_value('/proc/meminfo', 'MemTotal').split()[0]) / (1 << 20):.1f}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": _git(root, "describe", "--always", "--dirty") or "none yet",
        "dirty": "yes" if _git(root, "status", "--porcelain") else "no",
    }


def _first_value(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
