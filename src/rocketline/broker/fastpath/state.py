"""What the fast path remembers of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketline.broker.fastpath.grants import Grant

MISSES = 4
EVERY = 8
"""After MISSES reads in a row with nothing for the fast path, it looks at every EVERY-th read of a connection only."""


class ConnectionState:
    __slots__ = ("grant", "is_kept", "late_answers", "pull_misses", "send_misses")

    def __init__(self) -> None:
        self.grant: Grant | None = None
        """What its account may send to, where there is a guard."""
        self.is_kept = False
        """Its last read is kept, to be served with those of others."""
        self.late_answers = 0
        """Reads whose answers are ready and wait for the disk."""
        self.send_misses = 0
        """Reads since the last one with a plain send."""
        self.pull_misses = 0
        """Reads that began with a pull since the last one that was served here."""

    @property
    def waiting(self) -> int:
        return self.late_answers + self.is_kept
