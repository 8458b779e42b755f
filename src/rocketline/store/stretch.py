"""Records that were appended together, known by where they lie: what is to be filed of them is read there."""

from __future__ import annotations

from collections.abc import Callable

from rocketline._impl import quick
from rocketline.protocol.records import LogEntry, decode_record, log_entry

_read_entries: Callable[[memoryview, int, int, int, type[LogEntry]], list[LogEntry] | None] | None = quick(
    "stretch_entries"
)


class Stretch:
    """Records one behind the other in one file, and the topics they are of."""

    __slots__ = ("end", "start", "topics")

    def __init__(self, start: int, end: int, topics: set[str]) -> None:
        self.start = start
        self.end = end
        self.topics = topics


def entries_in(view: memoryview, base: int, stretch: Stretch) -> list[LogEntry]:
    """What queues and index need of each record, with all properties; `view` is the file that begins at `base`."""
    if _read_entries is not None:
        found = _read_entries(view, base, stretch.start, stretch.end, LogEntry)
        if found is not None:
            return found
    entries: list[LogEntry] = []
    position, end = stretch.start - base, stretch.end - base
    while position < end:
        entries.append(log_entry(decode_record(view, position, end)))
        position += entries[-1].size
    return entries
