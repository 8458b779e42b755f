"""What a closed store or cluster has left behind; what other tests of the process have, or lose, does not count."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path

OPEN_FILES = Path("/proc/self/fd")


def threads_since(before: Iterable[threading.Thread]) -> list[str]:
    """Names of the threads of ours that run now and are not among those of `threading.enumerate()` before."""
    known = set(before)
    names = [thread.name for thread in threading.enumerate() if thread not in known]
    return [name for name in names if name.startswith("rocketline-")]


def open_files(folder: Path) -> list[str]:
    """What this process has open of a folder, the folder itself too; nothing where the system does not tell."""
    if not OPEN_FILES.is_dir():
        return []
    found = []
    for descriptor in os.listdir(OPEN_FILES):
        try:
            target = os.readlink(OPEN_FILES / descriptor)
        except FileNotFoundError:
            continue  # closed meanwhile
        if Path(target.removesuffix(" (deleted)")).is_relative_to(folder):
            found.append(target)
    return found
