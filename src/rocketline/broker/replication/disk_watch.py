"""Whether the disk of a member still takes what is written: a flush may hang for minutes without an error."""

from __future__ import annotations

STUCK_S = 10.0
"""A flush that takes longer may never end."""


class DiskWatch:
    def __init__(self) -> None:
        self._since = 0.0
        self._end = 0
        """Of the log at that time."""

    def is_stuck(self, now: float, flushed: int, log_end: int) -> bool:
        """To be asked every second or so, with how much of the log is on disk and where it ends."""
        if flushed >= self._end:
            self._since, self._end = now, log_end
        return flushed < self._end and now - self._since > STUCK_S
