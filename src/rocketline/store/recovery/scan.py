"""Walking a commit log from front to back.

`LogScan` reads every record from an offset on and yields what queues and index need of it (`LogEntry`), in batches, until
it meets something that is no sound record. A record is sound when its magic, its lengths, the offset it names, its checksum
(if checked) and its sectors are right. A blank leads to the next file. `stop` says why reading ended; `skip` then finds the
next sound record after the damage.

Nearly every record is read by `record_runs`, many at a time. What that does not accept is read again by
`decode_record`, which decides and gives the reason.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import NamedTuple

from rocketline.errors import CorruptRecord
from rocketline.protocol.record_layout import BLANK_BYTES, MAGIC_AT, MAGIC_BLANK, MAGIC_V1
from rocketline.protocol.records import LogEntry, Record, decode_record, log_entry, read_start
from rocketline.store.files.segment import Segment
from rocketline.store.recovery.record_runs import (
    SECTOR_BYTES,
    FastLogReader,
    ParseProperties,
    Row,
    has_lost_sector,
    index_properties,
)

END_OF_LOG = "the end of the log"

_CHUNK_BYTES = 1 << 20
_ZEROS = bytes(_CHUNK_BYTES)
# Both record magics begin with these bytes.
_MAGIC_START = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]
"""Position in a record, after its size."""


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector during a walk over a log: the walk makes many tuples without cycles, and collecting took
    longer than the walk itself."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Stop(NamedTuple):
    """Where and why reading the log ended."""

    log_offset: int
    reason: str
    is_damage: bool
    """False when zeros follow, as after the last record."""


class Gap(NamedTuple):
    """A part of the log without a sound record."""

    log_offset: int
    next_log_offset: int
    reason: str


ScanProgress = Callable[[int, int], None]
"""Told now and then: (bytes of the log read, bytes that its files have)."""


def no_progress(done: int, total: int) -> None:
    """For walks nobody watches."""


class LogScan:
    """One walk over the files of a log.

    for batch in scan:      # lists of LogEntry
        ...
    scan.stop               # why it ended
    """

    def __init__(
        self,
        segments: Iterable[Segment],
        start: int,
        *,
        end: int | None = None,
        check_crc: bool = True,
        parse_properties: ParseProperties | None = None,
    ) -> None:
        """Read from `start`, where a record or a file begins, to `end` or as far as there are records.

        Entries have the properties that queues and index use, unless `parse_properties` returns others.
        """
        self.next_log_offset = start
        """Everything below is read."""
        self.records = 0
        self.stop: Stop | None = None
        self.odd_blanks: list[int] = []
        """Offsets of blanks with a wrong size; they lead to the next file all the same."""
        self._segments = list(segments)
        self._start = start
        self._end = end
        self.total_bytes = (self._segments[-1].next_base if end is None and self._segments else end or start) - start
        """How much there is to read at most: the rest of the last file may be empty."""
        self._saw_zeros_only = False
        """Whether `skip` found only zeros after the last stop."""
        self._check_crc = check_crc
        self._parse_properties = parse_properties or index_properties
        self._fast_reader = FastLogReader(check_crc, parse_properties)

    def __iter__(self) -> Iterator[list[LogEntry]]:
        for rows in self.rows():
            yield list(map(tuple.__new__, repeat(LogEntry), rows))

    def rows(self) -> Iterator[list[Row]]:
        """The same walk; yields plain tuples instead of entries."""
        self.stop, self._saw_zeros_only = None, False
        while self.stop is None:
            segment = self._segment_at(self.next_log_offset)
            if segment is None or self.next_log_offset == self._end:
                self.stop = self._no_file() if segment is None else Stop(self.next_log_offset, END_OF_LOG, False)
                return
            rows = self._step(segment)
            if rows:
                self.records += len(rows)
                yield rows

    @property
    def read_bytes(self) -> int:
        return self.next_log_offset - self._start

    @property
    def is_at_end(self) -> bool:
        """Whether the walk reached its given end, or the end of the last file."""
        return self.next_log_offset == self._end or not self._segments

    def _segment_at(self, log_offset: int) -> Segment | None:
        # The first segment is the current one: segments are dropped when they are read.
        while self._segments and self._segments[0].next_base <= log_offset:
            del self._segments[0]
        segment = self._segments[0] if self._segments else None
        return segment if segment is not None and segment.base <= log_offset else None

    def _no_file(self) -> Stop:
        offset = self.next_log_offset
        if not self._segments:
            return Stop(offset, END_OF_LOG, False)
        return Stop(offset, f"no file holds log offset {offset}, the next one is {self._segments[0].path.name}", True)

    def _step(self, segment: Segment) -> list[Row]:
        """The records of the next chunk of a file; sets `stop` when there is no sound record."""
        position = self.next_log_offset - segment.base
        chunk_at = position - position % SECTOR_BYTES
        view = segment.open()
        chunk = bytes(view[chunk_at : self._limit(segment, position + _CHUNK_BYTES)])
        rows: list[Row] = []
        end = chunk_at + self._fast_reader.read(chunk, position - chunk_at, segment.base + chunk_at, rows)
        if end == position:
            rows = self._read_one(segment, position)
        else:
            self.next_log_offset = segment.base + end
        segment.forget(position, self.next_log_offset - segment.base)
        return rows

    def _limit(self, segment: Segment, position: int) -> int:
        limit = min(position, segment.size)
        return limit if self._end is None else min(limit, self._end - segment.base)

    def _read_one(self, segment: Segment, position: int) -> list[Row]:
        """The next record, read on the general path; nothing for a blank, and when it sets `stop`."""
        offset = self.next_log_offset
        view, limit = segment.open(), self._limit(segment, segment.size)
        if limit - position < BLANK_BYTES:
            self.stop = Stop(offset, f"no room for a record at {offset}", True)
            return []
        size, magic = read_start(view, position)
        if magic == MAGIC_BLANK:
            if size != segment.size - position:
                self.odd_blanks.append(offset)
            self.next_log_offset = segment.next_base
            return []
        try:
            record = sound_record(segment, position, limit, self._check_crc)
        except CorruptRecord as error:
            if any(view[position : position + BLANK_BYTES]):
                self.stop = Stop(offset, f"no sound record at log offset {offset}: {error}", True)
            else:
                self.stop = Stop(offset, END_OF_LOG, False)
            return []
        self.next_log_offset = offset + record.size
        return [self._entry(record)]

    def _entry(self, record: Record) -> LogEntry:
        properties = self._parse_properties(record.properties.decode("utf-8", "replace"))
        return log_entry(record)._replace(properties=properties)

    def skip(self) -> Gap | None:
        """After a stop: go to the next sound record and return the gap before it; None when no record follows."""
        assert self.stop is not None
        start = self.next_log_offset
        found, self._saw_zeros_only = self._search(start + 1)
        if found is None:
            return None
        self.next_log_offset = found
        reason = self.stop.reason if self.stop.is_damage else f"zeros at log offset {start}, but records follow"
        return Gap(start, found, reason)

    def find_record(self, start: int) -> int | None:
        """Where the first sound record begins at or after `start`."""
        return self._search(start)[0]

    def _search(self, start: int) -> tuple[int | None, bool]:
        """Where the first sound record begins, and whether all bytes from the first possible magic on are zeros."""
        saw_zeros_only = True
        for segment in self._segments:
            first = max(0, start - segment.base)
            limit = self._limit(segment, segment.size)
            for at, piece in _filled_pieces(segment, first + MAGIC_AT, limit):
                saw_zeros_only = False
                for position in _magic_positions(at, piece):
                    try:
                        sound_record(segment, position - MAGIC_AT, limit, self._check_crc)
                    except CorruptRecord:
                        continue
                    return segment.base + position - MAGIC_AT, False
        return None, saw_zeros_only

    def data_follows(self) -> bool:
        """Whether anything but zeros follows the place where reading ended."""
        start = self.next_log_offset
        for segment in self._segments:
            first, limit = max(0, start - segment.base), self._limit(segment, segment.size)
            if self._saw_zeros_only:
                limit = min(limit, first + 1 + MAGIC_AT)  # `skip` has seen the rest
            if next(_filled_pieces(segment, first, limit), None) is not None:
                return True
        return False


def sound_record(segment: Segment, position: int, limit: int, check_crc: bool = True) -> Record:
    """The record at a position of a file; CorruptRecord says what is wrong with it."""
    view = segment.open()
    record = decode_record(view, position, limit, check_crc)
    offset = segment.base + position
    if record.log_offset != offset:
        raise CorruptRecord(f"it says that it belongs at {record.log_offset}")
    end = position + record.size
    properties_bytes = len(record.properties)
    text_at = end - properties_bytes - 2 - len(record.topic.encode())
    if has_lost_sector(view, 0, text_at, end, properties_bytes):
        raise CorruptRecord("a part of it never reached the disk")
    # A process that died while copying a record leaves zeros from there on. If data follows, the zero is part of the record.
    if not view[end - 1 if properties_bytes else end - 3] and not any(view[end : end + BLANK_BYTES]):
        raise CorruptRecord("its end was never written")
    return record


def _filled_pieces(segment: Segment, start: int, limit: int) -> Iterator[tuple[int, bytes]]:
    """(position, bytes) of the pieces of a file that are not all zeros; pieces overlap, so that no magic is cut."""
    view = segment.open()
    while start < limit:
        end = min(start + _CHUNK_BYTES, limit)
        piece = bytes(view[start:end])
        segment.forget(start, end)
        # Most of what is searched is the unused rest of the last file, up to a gigabyte.
        if piece != _ZEROS[: len(piece)]:
            yield start, piece
        if end == limit:
            return
        start = end - len(_MAGIC_START) + 1


def _magic_positions(start: int, piece: bytes) -> Iterator[int]:
    """Positions of magic bytes in a piece that begins at `start`."""
    found = piece.find(_MAGIC_START)
    while found >= 0:
        yield start + found
        found = piece.find(_MAGIC_START, found + 1)
