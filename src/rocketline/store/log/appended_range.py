"""What was appended and is not dispatched yet: records one behind the other in one file of the log.

`append` notes an entry for each record. Whoever writes records into reserved room notes none: the dispatcher reads them from
the log, which is cheaper than an object for each message.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter

from rocketline._impl import compiled
from rocketline.protocol.records import LogEntry, decode_record, log_entry

_offset_of = itemgetter(0)


class AppendedRange:
    """Records from `start` to `end`, and the topics they are of."""

    __slots__ = ("end", "entries", "start", "topics")

    def __init__(self, start: int, end: int, topics: set[str], entries: list[LogEntry] | None = None) -> None:
        self.start = start
        self.end = end
        self.topics = topics
        self.entries = entries
        """One for each record; None: nobody noted them."""

    def split(self, log_offset: int) -> AppendedRange:
        """Cut off and return what lies below `log_offset`, where a record begins; the rest stays."""
        first: list[LogEntry] | None = None
        if self.entries is not None:
            count = bisect_left(self.entries, log_offset, key=_offset_of)
            first, self.entries = self.entries[:count], self.entries[count:]
        taken = AppendedRange(self.start, log_offset, self.topics, first)
        self.start = log_offset
        return taken


@compiled
def range_entries(
    view: memoryview, base: int, start: int, end: int, entry_type: type[LogEntry]
) -> list[LogEntry] | None:
    """The entries of the records from `start` to `end`; `view` is the file that begins at `base`.

    None from compiled code: some record is odd, and `read_entries` reads them in Python.
    """
    return None


def read_entries(view: memoryview, base: int, start: int, end: int) -> list[LogEntry]:
    """What queues and index need of each record from `start` to `end`, with all properties."""
    entries = range_entries(view, base, start, end, LogEntry)
    if entries is None:
        entries = []
        position = start - base
        while position < end - base:
            entries.append(log_entry(decode_record(view, position, end - base)))
            position += entries[-1].size
    return entries
