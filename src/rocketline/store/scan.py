"""Walking a commit log from front to back, as fast as Python can.

`LogScan` reads every record from an offset on and hands out what the indexes need of it (`LogEntry`), in batches, until
something is no sound record. A record is sound when its magic, its lengths, the offset it names, its checksum (if asked
for) and its sectors are right. A blank leads to the next file. Why reading ended is in `stop`; `skip` then looks for the
next sound record behind the damage, so that its neighbours are found.

Nearly every record takes the quick road: one unpack of a fixed part, a few comparisons, no object but the entry. Whatever
looks odd there is looked at again by `decode_record`, which alone decides and gives the reason.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from zlib import crc32

from rocketline.errors import CorruptRecord
from rocketline.message import KEYS, TAGS, UNIQ_KEY
from rocketline.protocol.hashing import tag_hash
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES
from rocketline.protocol.records import (
    BLANK_BYTES,
    BORN_IPV6,
    MAGIC_BLANK,
    MAGIC_V1,
    MIN_RECORD_BYTES,
    STORE_IPV6,
    LogEntry,
    Record,
    decode_record,
    log_entry,
    read_start,
)
from rocketline.store.segment import Segment

SECTOR_BYTES = 512
END_OF_LOG = "the end of the log"

_CHUNK_BYTES = 1 << 20
_HOSTS = BORN_IPV6 | STORE_IPV6
# Both record magics begin with these bytes.
_MAGIC_START = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]

# Of the fixed part: size, magic, CRC, queue id, queue offset, log offset, system flag, store time, body length.
_SHAPES = {
    born | store: struct.Struct(f">iiii4xqqi8x{20 if born else 8}xq{20 if store else 8}x12xi")
    for born in (0, BORN_IPV6)
    for store in (0, STORE_IPV6)
}
_PLAIN = _SHAPES[0]


ParseProperties = Callable[[str], dict[str, str]]


class Stop(NamedTuple):
    """Where and why reading the log ended."""

    log_offset: int
    reason: str
    is_damage: bool
    """False when only zeros were met, which is what follows the last record."""


class Gap(NamedTuple):
    """A stretch of the log without a sound record."""

    log_offset: int
    next_log_offset: int
    reason: str


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

        Entries have the properties that queues and index use, unless `parse_properties` finds others.
        """
        self.next_log_offset = start
        """Everything below was read."""
        self.records = 0
        self.stop: Stop | None = None
        self.odd_blanks: list[int] = []
        """Offsets of blanks that do not say the size they have; they are followed all the same."""
        self._segments = list(segments)
        self._end = end
        self._check_crc = check_crc
        self._parse_properties = parse_properties or index_properties
        self._topics: dict[bytes, str] = {}

    def __iter__(self) -> Iterator[list[LogEntry]]:
        self.stop = None
        while self.stop is None:
            segment = self._segment_at(self.next_log_offset)
            if segment is None or self.next_log_offset == self._end:
                self.stop = self._no_file() if segment is None else Stop(self.next_log_offset, END_OF_LOG, False)
                return
            batch = self._step(segment)
            if batch:
                self.records += len(batch)
                yield batch

    def _segment_at(self, log_offset: int) -> Segment | None:
        # The first one is in use, because those behind it are dropped as reading goes on.
        while self._segments and self._segments[0].next_base <= log_offset:
            del self._segments[0]
        segment = self._segments[0] if self._segments else None
        return segment if segment is not None and segment.base <= log_offset else None

    def _no_file(self) -> Stop:
        offset = self.next_log_offset
        if not self._segments:
            return Stop(offset, END_OF_LOG, False)
        return Stop(offset, f"no file holds log offset {offset}, the next one is {self._segments[0].path.name}", True)

    def _step(self, segment: Segment) -> list[LogEntry]:
        """What the next stretch of a file holds; sets `stop` when it is empty because of what was met."""
        position = self.next_log_offset - segment.base
        view = segment.open()
        chunk = bytes(view[position : self._limit(segment, position + _CHUNK_BYTES)])
        batch: list[LogEntry] = []
        taken = self._read_run(chunk, self.next_log_offset, segment.base, batch)
        if not taken:
            batch = self._read_odd(segment, position)
            taken = self.next_log_offset - segment.base - position
        else:
            self.next_log_offset += taken
        segment.forget(position, position + taken)
        return batch

    def _limit(self, segment: Segment, position: int) -> int:
        limit = min(position, segment.size)
        return limit if self._end is None else min(limit, self._end - segment.base)

    def _read_run(self, chunk: bytes, start: int, base: int, batch: list[LogEntry]) -> int:
        """Add the entries of all plainly sound records to `batch`; returns how many bytes they take."""
        position, length = 0, len(chunk)
        file_at = start - base
        last = length - MIN_RECORD_BYTES
        check_crc, parse = self._check_crc, self._parse_properties
        topics = self._topics
        tag_codes: dict[str, int] = {}
        known_topic, known_tag = topics.get, tag_codes.get
        add = batch.append
        new, kind, plain = tuple.__new__, LogEntry, _PLAIN.unpack_from
        view = memoryview(chunk)
        while position <= last:
            size, magic, crc, queue_id, queue_offset, log_offset, sys_flag, store_ms, body_bytes = plain(
                chunk, position
            )
            body_at = position + 88
            if sys_flag & _HOSTS:
                shape = _SHAPES[sys_flag & _HOSTS]
                body_at = position + shape.size
                if body_at > length:
                    break
                *_, store_ms, body_bytes = shape.unpack_from(chunk, position)
            end = position + size
            topic_at = body_at + body_bytes
            if magic != MAGIC_V1 or log_offset != start + position or not body_at <= topic_at <= end - 3 < length - 2:
                break
            properties_at = topic_at + 3 + chunk[topic_at]
            if not 0 <= (rest := end - properties_at) <= MAX_PROPERTIES_BYTES:
                break
            if chunk[properties_at - 2] << 8 | chunk[properties_at - 1] != rest:
                break
            if check_crc and crc32(view[body_at:topic_at]) & 0x7FFFFFFF != crc:
                break
            # Sectors begin at multiples within the file, not within the chunk.
            if (file_at + end) >> 9 != (file_at + topic_at) >> 9 and _has_lost_sector(
                chunk, file_at, topic_at + 1, end, rest
            ):
                break
            # Neither a topic nor a property list ends in a zero, unless the record was cut short.
            if not chunk[end - 1 if rest else end - 3]:
                break
            raw_topic = chunk[topic_at + 1 : properties_at - 2]
            topic = known_topic(raw_topic)
            if topic is None:
                try:
                    topic = topics[raw_topic] = raw_topic.decode()
                except UnicodeDecodeError:
                    break
            properties = parse(chunk[properties_at:end].decode("utf-8", "replace")) if rest else {}
            tags = properties.get(TAGS)
            if tags:
                tags_code = known_tag(tags)
                if tags_code is None:
                    tags_code = tag_codes[tags] = tag_hash(tags)
            else:
                tags_code = 0
            add(
                new(
                    kind,
                    (
                        log_offset, size, topic, queue_id, queue_offset, tags_code, store_ms, sys_flag,
                        properties,
                    ),
                )
            )  # fmt: skip
            position = end
        return position

    def _read_odd(self, segment: Segment, position: int) -> list[LogEntry]:
        """One record of an unusual form or size, or a blank, or the stop."""
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
        """After a stop: go to the next sound record and return what lies before it; None when none follows."""
        assert self.stop is not None
        start = self.next_log_offset
        found = self.find_record(start + 1)
        if found is None:
            return None
        self.next_log_offset = found
        reason = self.stop.reason if self.stop.is_damage else f"zeros at log offset {start}, but records follow"
        return Gap(start, found, reason)

    def find_record(self, start: int) -> int | None:
        """Where the first sound record begins at or after `start`."""
        for segment in self._segments:
            first = max(0, start - segment.base)
            limit = self._limit(segment, segment.size)
            for position in _magic_positions(segment, first + 4, limit):
                try:
                    sound_record(segment, position - 4, limit, self._check_crc)
                except CorruptRecord:
                    continue
                return segment.base + position - 4
        return None

    def data_follows(self) -> bool:
        """Whether anything but zeros lies behind the place where reading ended."""
        start = self.next_log_offset
        for segment in self._segments:
            view = segment.open()
            limit = self._limit(segment, segment.size)
            for position in range(max(0, start - segment.base), limit, _CHUNK_BYTES):
                end = min(position + _CHUNK_BYTES, limit)
                piece = bytes(view[position:end])
                segment.forget(position, end)
                if piece.count(0) != len(piece):
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
    if _has_lost_sector(view, 0, text_at, end, properties_bytes):
        raise CorruptRecord("a part of it never reached the disk")
    # A process that dies while it copies a record leaves zeros from there on. With data behind it, somebody sent that zero.
    if not view[end - 1 if properties_bytes else end - 3] and not any(view[end : end + BLANK_BYTES]):
        raise CorruptRecord("its end was never written")
    return record


def _has_lost_sector(buffer: bytes | memoryview, buffer_at: int, text_at: int, end: int, properties_bytes: int) -> bool:
    """Whether some disk sector that begins inside topic or properties holds nothing of the record but zeros.

    A power failure loses some sectors and keeps others. Those that begin before topic and properties show in the checksum or
    in lengths that do not add up. `buffer` begins at `buffer_at` in its file.
    """
    # Without properties the last two bytes are zeros by right.
    last = end if properties_bytes else end - 2
    first = text_at + -(buffer_at + text_at) % SECTOR_BYTES
    for sector in range(first, last, SECTOR_BYTES):
        if buffer[sector] == 0 and not any(buffer[sector : min(sector + SECTOR_BYTES, end)]):
            return True
    return False


def _magic_positions(segment: Segment, start: int, limit: int) -> Iterator[int]:
    """Where in a file the bytes of a magic stand."""
    view = segment.open()
    while start < limit:
        end = min(start + _CHUNK_BYTES, limit)
        piece = bytes(view[start:end])
        segment.forget(start, end)
        found = piece.find(_MAGIC_START)
        while found >= 0:
            yield start + found
            found = piece.find(_MAGIC_START, found + 1)
        if end == limit:
            return
        start = end - len(_MAGIC_START) + 1


def index_properties(text: str) -> dict[str, str]:
    """Of a record's properties only those that consume queue and key index use, read as leniently as all of them.

    >>> index_properties("WAIT\\x01true\\x02KEYS\\x01a b\\x02TAGS\\x01red\\x02")
    {'KEYS': 'a b', 'TAGS': 'red'}
    """
    return dict(_find_used("\x02" + text))


_find_used = re.compile(f"\x02({UNIQ_KEY}|{KEYS}|{TAGS})\x01([^\x02]+)").findall
