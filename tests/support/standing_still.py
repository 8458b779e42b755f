"""A process that really stands still.

A stop signal is taken up by one thread of the process, which then stops the others: on a busy machine these work on for a
while after the signal was sent.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.support.patience import PATIENCE_S


def stop_process(pid: int) -> None:
    """Stop a process and return when all of its threads stand still."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE_S
    while set(_states(pid)) != {"T"}:
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} does not stand still: its threads are in states {sorted(_states(pid))}")
        time.sleep(0.001)


def _states(pid: int) -> list[str]:
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            # The name in parentheses may contain anything.
            states.append(stat.read_text().rpartition(") ")[2][0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that ended meanwhile
    return states
