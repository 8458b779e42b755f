"""Comparing consume queues with the log, in one walk over the log.

Every record must be listed by the unit of its queue offset. Units that match no record of the walk are checked one by one:
they may list records of deleted log files, or be fillers; otherwise they are wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rocketline.errors import CorruptRecord
from rocketline.protocol.records import LogEntry, Record
from rocketline.store.config import UNIT_BYTES
from rocketline.store.files.segment import Segment
from rocketline.store.queue.batch_dispatch import QueueKey, by_queue
from rocketline.store.queue.consume_queue import FILLER_SIZE, UNIT
from rocketline.store.recovery.scan import sound_record
from rocketline.store.tools.findings import QUEUES, Findings, StoreFinding

EXT_ADDRESS_MAX = -2147483649
"""Tags codes up to this are addresses of extended units."""

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Its units hold deliver times instead of tag hashes."""

_EMPTY = bytes(UNIT_BYTES)
_MISSING_KEPT = 1000


class LogRecords:
    """Random access to the records of a log."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self._bases = [segment.base for segment in segments]
        self.min_offset = self._bases[0] if segments else 0

    def at(self, log_offset: int) -> Record:
        """The record at an offset; CorruptRecord when no sound record begins there."""
        number = bisect_right(self._bases, log_offset) - 1
        if number < 0 or log_offset >= self._segments[number].next_base:
            raise CorruptRecord(f"log offset {log_offset} is in no file")
        segment = self._segments[number]
        return sound_record(segment, log_offset - segment.base, segment.size)


@dataclass(frozen=True)
class CheckLimits:
    """How far an inspection reads, and from where on a broker's next start repairs what it finds."""

    end: int | None
    """For a store in use: the log's end when the inspection began."""
    heals_from: int | None
    """After a crash: recovery lists the records from here on again."""

    def heals(self, log_offset: int) -> bool:
        return self.heals_from is not None and log_offset >= self.heals_from


class QueueUnits:
    """The units of one queue, read from its files."""

    def __init__(self, segments: Sequence[Segment], first: int | None = None, stop: int | None = None) -> None:
        """`first` and `stop` limit which units are checked one by one; `unit` and `raw` give any unit."""
        in_files = segments[0].base // UNIT_BYTES if segments else 0
        self.first = in_files if first is None else first
        self.stop = stop
        self._segments = list(segments)
        self._bases = [segment.base for segment in segments]

    def listing(self, start: int | None, end: int | None) -> QueueUnits:
        """Limited to the units that list records between two log offsets; adjacent ranges leave out no unit."""
        first = None if start is None else self.number_at(start)
        stop = self.number_at(end) if end is not None else None if start is None else self.end()
        return QueueUnits(self._segments, first, stop)

    def number_at(self, log_offset: int) -> int:
        """The number of the first unit that lists a record at or after a log offset, if they ascend as they should."""
        low, high = self.first, self.end()
        while low < high:
            middle = (low + high) // 2
            if self.unit(middle)[0] < log_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def raw(self, number: int, count: int) -> bytes:
        """The bytes of up to `count` units; fewer when a file is missing."""
        position, end = number * UNIT_BYTES, (number + count) * UNIT_BYTES
        pieces: list[bytes] = []
        while position < end:
            at = bisect_right(self._bases, position) - 1
            segment = self._segments[at] if at >= 0 else None
            if segment is None or position >= segment.next_base:
                break
            stop = min(end, segment.next_base)
            pieces.append(bytes(segment.open()[position - segment.base : stop - segment.base]))
            position = stop
        return b"".join(pieces)

    def unit(self, number: int) -> tuple[int, int, int]:
        """(log offset, size, tags code), all zero when there is no such unit."""
        raw = self.raw(number, 1)
        return UNIT.unpack(raw if len(raw) == UNIT_BYTES else _EMPTY)

    def end(self) -> int:
        """The number after the last unit, if units are dense."""
        for segment in reversed(self._segments):
            low, high = 0, segment.size // UNIT_BYTES
            view = segment.open()
            while low < high:
                middle = (low + high) // 2
                if UNIT.unpack_from(view, middle * UNIT_BYTES)[1] > 0:
                    low = middle + 1
                else:
                    high = middle
            if low:
                return segment.base // UNIT_BYTES + low
        return self.first


class QueueCheck:
    """Compares one queue with the log, batch by batch."""

    def __init__(
        self, key: QueueKey, units: QueueUnits, log: LogRecords, limits: CheckLimits, findings: Findings
    ) -> None:
        self.listed = 0
        self.behind = 0
        """Records at the log's end that no queue lists yet."""
        self._name = f"{key[0]}/{key[1]}"
        self._key = key
        self._units = units
        self._log = log
        self._limits = limits
        self._findings = findings
        self._next = units.first
        self.lowest = -1
        """Queue offset of the first record of the walk; -1: none yet."""
        self.highest = -1
        """Queue offset of the last record of the walk."""
        self.began_anew = False
        """Whether queue offsets started again, as after a deletion of the topic."""
        self._missing: list[LogEntry] = []
        """Records without their unit; dropped when queue offsets start again, because then their topic was deleted."""
        self._missing_count = 0

    def follow(self, entries: Sequence[LogEntry], listed_end: int) -> None:
        """Compare the next records of the queue; `listed_end`: no queue lists anything from there on."""
        first, count = entries[0].queue_offset, len(entries)
        if self.lowest < 0:
            self.lowest = first
        wanted = b"".join([UNIT.pack(entry[0], entry[1], entry[5]) for entry in entries])
        is_dense = [entry[4] for entry in entries] == list(range(first, first + count))
        if is_dense and first >= self._next and self._units.raw(first, count) == wanted:
            self._check_units(self._next, first)
            self._next = first + count
            self.highest = self._next - 1
            self.listed += count
            return
        for entry in entries:
            self._follow_one(entry, listed_end)

    def _follow_one(self, entry: LogEntry, listed_end: int) -> None:
        number = entry.queue_offset
        if number <= self.highest:
            self.forget_missing()
            self.began_anew = True
        self.highest = number
        log_offset, size, tags_code = self._units.unit(number)
        if (log_offset, size) == (entry.log_offset, entry.size):
            if not _is_right_code(entry, tags_code):
                self._bad(number, entry.log_offset, f"has tags code {tags_code}, its record {entry.tags_code}")
            self.listed += 1
        elif size <= 0 and entry.log_offset >= listed_end:
            self.behind += 1
            return
        elif log_offset > entry.log_offset and 0 < size != FILLER_SIZE:
            # The topic was deleted and created again: the walk will show whether the unit belongs to a later record.
            return
        else:
            self._missing_count += 1
            if len(self._missing) < _MISSING_KEPT:
                self._missing.append(entry)
        self._check_units(self._next, number)
        self._next = max(self._next, number + 1)

    def _check_units(self, start: int, stop: int) -> None:
        """Check units that match no record of the walk."""
        if self._units.stop is not None:
            stop = min(stop, self._units.stop)
        for number in range(start, stop):
            log_offset, size, _ = self._units.unit(number)
            if size == FILLER_SIZE and log_offset == 0:
                continue
            if size <= 0:
                self._bad(number, log_offset, "is empty, but units follow")
            elif log_offset >= self._log.min_offset and not self._is_beyond(log_offset):
                self._check_record_of(number, log_offset, size)

    def _is_beyond(self, log_offset: int) -> bool:
        return self._limits.end is not None and log_offset >= self._limits.end

    def _check_record_of(self, number: int, log_offset: int, size: int) -> None:
        try:
            record = self._log.at(log_offset)
        except CorruptRecord as error:
            self._bad(number, log_offset, f"points at log offset {log_offset}, where no sound record is: {error}")
            return
        if (record.topic, record.queue_id) != self._key or record.queue_offset != number:
            found = f"{record.topic}/{record.queue_id} number {record.queue_offset}"
            self._bad(number, log_offset, f"points at log offset {log_offset}, where the record of {found} is")
        elif record.size != size:
            self._bad(number, log_offset, f"gives {size} bytes to the record at {log_offset}, which has {record.size}")

    def finish(self) -> None:
        """At the end of the log: check the units that are left."""
        for finding in self.missing():
            self._findings.add_finding(finding)
        number, stop = self._next, self._units.stop
        while (stop is None or number < stop) and self._units.unit(number)[1] > 0:
            self._check_units(number, number + 1)
            number += 1

    def missing(self) -> Iterator[StoreFinding]:
        """Findings about records without their unit."""
        for entry in self._missing:
            found = _described(*self._units.unit(entry.queue_offset)[:2])
            problem = f"{found}, but the log has a record of that number at {entry.log_offset}"
            yield self._finding(entry.queue_offset, entry.log_offset, problem)
        if self._missing_count > _MISSING_KEPT:
            last, more = self._missing[-1], self._missing_count - _MISSING_KEPT
            yield self._finding(last.queue_offset, last.log_offset, f"{more} more are like this one")

    def forget_missing(self) -> None:
        self._missing.clear()
        self._missing_count = 0

    def _bad(self, number: int, log_offset: int, problem: str) -> None:
        self._findings.add_finding(self._finding(number, log_offset, problem))

    def _finding(self, number: int, log_offset: int, problem: str) -> StoreFinding:
        return StoreFinding(QUEUES, f"{self._name} unit {number}", problem, self._limits.heals(log_offset))


class QueuesCheck:
    """Compares all queues of a store with the log."""

    def __init__(
        self,
        units: dict[QueueKey, QueueUnits],
        log: LogRecords,
        limits: CheckLimits,
        findings: Findings,
        topics: set[str],
        batch_topics: set[str],
    ) -> None:
        """`topics`: those the broker knows; records of other topics may have no queue, because deleting a topic leaves its
        records in the log. `batch_topics` have queues of another format.
        """
        self.records_of_deleted_topics = 0
        self.checks = {key: QueueCheck(key, of, log, limits, findings) for key, of in units.items()}
        self._topics = topics
        self._batch_topics = batch_topics
        self._limits = limits
        self._findings = findings
        self._missing: set[QueueKey] = set()
        self._behind_without_queue = 0
        ends = [of.unit(of.end() - 1) for of in units.values()]
        # End of the last record that any queue lists.
        self.listed_end = max((unit[0] + unit[1] for unit in ends if unit[1] != FILLER_SIZE), default=0)

    @property
    def listed(self) -> int:
        return sum(check.listed for check in self.checks.values())

    @property
    def behind(self) -> int:
        """Records at the log's end that are in no queue yet."""
        return sum(check.behind for check in self.checks.values()) + self._behind_without_queue

    def follow(self, entries: Iterable[LogEntry]) -> None:
        for key, group in by_queue(entries).items():
            check = self.checks.get(key)
            if check is not None:
                check.follow(group, self.listed_end)
            elif key[0] in self._batch_topics:
                continue
            elif self._topics and key[0] not in self._topics:
                self.records_of_deleted_topics += len(group)
            elif group[0].log_offset >= self.listed_end:
                self._behind_without_queue += len(group)
            elif key not in self._missing:
                self._missing.add(key)
                offset = group[0].log_offset
                problem = f"the queue is missing, but the log has records of it, the first at {offset}"
                self._findings.add(QUEUES, f"{key[0]}/{key[1]}", problem, self._limits.heals(offset))

    def finish(self) -> None:
        for check in self.checks.values():
            check.finish()


def _is_right_code(entry: LogEntry, tags_code: int) -> bool:
    if tags_code == entry.tags_code or tags_code <= EXT_ADDRESS_MAX:
        return True
    return entry.topic == SCHEDULE_TOPIC and tags_code >= entry.store_ms


def _described(log_offset: int, size: int) -> str:
    if size <= 0:
        return "is empty"
    if size == FILLER_SIZE and log_offset == 0:
        return "is a filler"
    return f"points at log offset {log_offset} ({size} bytes)"
