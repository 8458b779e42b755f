"""What a system can do: tests that need something are skipped where it is missing, by what is there and not by a name."""

from __future__ import annotations

import os
import signal

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
needs_thread_signals = pytest.mark.skipif(
    not hasattr(signal, "pthread_kill") or not hasattr(signal, "SIGUSR1"),
    reason="this system has no signals for threads",
)

_DESCRIPTORS = next((folder for folder in ("/proc/self/fd", "/dev/fd") if os.path.isdir(folder)), None)


def open_descriptors() -> int:
    """How many files, sockets and pipes this process has open; always the same where the system does not tell."""
    return len(os.listdir(_DESCRIPTORS)) if _DESCRIPTORS is not None else 0
