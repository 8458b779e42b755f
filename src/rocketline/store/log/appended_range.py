"""Records that were appended together, known by where they lie: what is to be filed of them is read there, or was noted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rocketline._impl import quick
from rocketline.message import LogOffset, QueueOffset
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.records import LogEntry, decode_record, log_entry

_read_entries: Callable[[memoryview, int, int, int, type[LogEntry]], list[LogEntry] | None] | None = quick(
    "stretch_entries"
)

QueueKey = tuple[str, int]
Listed = tuple[int, int, int, int, bytes, Sequence[bytes], bytes]
"""Of records of one size, one behind the other: log offset of the first, size, tags code, system flag, and their properties,
that is how all begin, what each goes on with, and how all end."""


class QueueShare:
    """The records of a stretch that belong to one queue, numbered from `start`."""

    __slots__ = ("key_start", "number", "runs", "start")

    def __init__(self, key: QueueKey, start: int) -> None:
        self.key_start = f"{key[0]}#".encode()
        """Of everything they are filed under."""
        self.start = start
        self.number = start
        """Of the next one."""
        self.runs: list[Listed] = []


class Filing:
    """What was noted of the records of a stretch when they were written, so that none has to be read again."""

    __slots__ = ("key_ends", "key_starts", "last_bytes", "owners", "shares", "store_ms")

    def __init__(self, store_ms: int) -> None:
        self.store_ms = store_ms
        self.last_bytes = 0
        """Of the last record."""
        self.shares: dict[QueueKey, QueueShare] = {}
        self.key_starts: list[bytes] = []
        self.key_ends: list[bytes] = []
        """`topic#key` for everything they are filed under, in order, cut before its last eight bytes (`key_hashes`)."""
        self.owners: list[int] = []
        """For each the log offset of its record."""

    def entries(self) -> Iterator[LogEntry]:
        for (topic, queue_id), share in self.shares.items():
            number = share.start
            for log_offset, size, code, sys_flag, before, parts, after in share.runs:
                for part in parts:
                    properties = decode_properties((before + part + after).decode("utf-8", "replace"))
                    yield LogEntry(
                        LogOffset(log_offset), size, topic, queue_id, QueueOffset(number), code, self.store_ms, sys_flag,
                        properties,
                    )  # fmt: skip
                    log_offset += size
                    number += 1


class Stretch:
    """Records one behind the other in one file, and the topics they are of."""

    __slots__ = ("end", "filing", "start", "topics")

    def __init__(self, start: int, end: int, topics: set[str], filing: Filing | None = None) -> None:
        self.start = start
        self.end = end
        self.topics = topics
        self.filing = filing


def entries_in(view: memoryview, base: int, stretch: Stretch) -> list[LogEntry]:
    """What queues and index need of each record, with all properties; `view` is the file that begins at `base`."""
    if stretch.filing is not None:
        return sorted(stretch.filing.entries())
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
