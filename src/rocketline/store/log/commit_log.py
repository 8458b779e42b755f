"""The commit log: every message of every topic, in the order it arrived.

Rules of the file format (all RocketMQ's):

- A record never crosses a file. When it and the eight bytes of a blank do not fit, the rest of the file becomes a blank and
  the record goes to the next file; a batch moves as a whole.
- Queue offsets are given out here, per topic and queue, at the moment of the append. Messages of the prepared and rollback
  kind get none: they carry 0 and no consume queue lists them.
- The store time never goes backwards, so that a search by time may be a binary search even when the clock was set back.

One thread appends and reads. `wrote` is where the next record goes; it is set after the bytes are in place, so the flusher
thread may read it at any time. `readable` is the end of what may be read or flushed: the same, unless records are staged in
the buffers of a transient pool, from where `commit` brings them to the file.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rocketline.clock import Clock
from rocketline.errors import StoreError
from rocketline.message import TAGS, LogOffset, QueueOffset
from rocketline.protocol.hashing import tag_hash
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES
from rocketline.protocol.record_layout import (
    BLANK_BYTES,
    BORN_IPV6,
    HEAD_BYTES,
    HOSTS_MASK,
    IPV6_EXTRA_BYTES,
    LOG_OFFSET_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    STORE_IPV6,
    STORE_MS_AT,
    SYS_FLAG_AT,
    TRANSACTION_PREPARED,
)
from rocketline.protocol.records import (
    BatchItem,
    Buffer,
    LogEntry,
    RecordHead,
    decode_record,
    encode_blank,
    is_sound_record,
    log_entry,
    read_start,
    record_size,
    topic_part,
    write_record,
)
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import Disk
from rocketline.store.files.segment import Segment
from rocketline.store.files.segmented_file import SegmentedFile
from rocketline.store.log.append_result import (
    AppendResult,
    AppendStatus,
    RecordLimits,
    StoreMessage,
    badly_placed,
    is_storable_topic,
    lost_properties,
    refused,
)
from rocketline.store.log.appended_range import AppendedRange, read_entries
from rocketline.store.log.batch_records import looks_lost, write_batch
from rocketline.store.log.log_memory import RESERVE_BYTES, LogMemory
from rocketline.store.log.staging import Staging

__all__ = [
    "AppendResult",
    "AppendStatus",
    "CommitLog",
    "Room",
    "StoreMessage",
    "is_storable_topic",
    "record_store_ms",
    "refused",
]

_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")


class Room(NamedTuple):
    """Reserved bytes behind the last record of the log, for records that somebody else writes.

    The writer takes the numbers of its records from `queue_offsets` and leaves the next ones there.
    """

    view: memoryview
    """Memory of the file the room is in."""
    base: int
    """Log offset at which that file begins."""
    start: int
    """Log offset of the first record."""
    limit: int
    """Log offset up to which may be written."""
    store_ms: int
    """Store time of all records."""
    queue_offsets: dict[tuple[str, int], int]


class CommitLog:
    def __init__(self, disk: Disk, folder: Path, config: StoreConfig, store_host: bytes, clock: Clock) -> None:
        self.file = SegmentedFile(disk, folder, config.log_segment_bytes, pinned=True)
        self.wrote = 0
        self.last_store_ms = 0
        self.staging: Staging | None = None
        """Where records wait to be brought to their file, when there is a transient pool."""
        self.queue_offsets: dict[tuple[str, int], int] = {}
        self.appended: deque[AppendedRange] = deque()
        """What was appended and not yet dispatched, in order."""
        self._clock = clock
        self._store_host = store_host
        self._store_flag = STORE_IPV6 if len(store_host) > 8 else 0
        self.limits = RecordLimits.of(config)
        self._max_body_bytes, self._max_record_bytes, _ = self.limits
        self._topic_parts: dict[str, tuple[int, bytes]] = {}
        # The current file: its memory, its start, and how far into it (absolute) may be written without further ado.
        self._view = memoryview(b"")
        self._base = 0
        self._limit = 0
        self._memory = LogMemory(self.file, config, clock)

    def load(self) -> None:
        """Take up the files that are there; StoreError when their sizes are wrong or one is missing in between."""
        self.file.load()
        expected = self.file.min_offset
        for segment in self.file:
            if segment.base != expected:
                raise StoreError(
                    f"{self.file.folder} has {segment.path.name} but not {expected:020d} before it; bring the missing file "
                    "back, or move the later ones away if it is lost"
                )
            expected = segment.next_base

    def append(self, message: StoreMessage) -> AppendResult:
        """Store one message. Bad ones are refused by value; StoreError when there is no room for a good one."""
        topic = message.topic
        body = message.body
        raw = message.properties_raw
        part = self._topic_parts.get(topic) or self._learn(topic)
        if part is None or message.queue_id < 0:
            return badly_placed(topic, message.queue_id)
        born_host = message.born_host
        sys_flag = message.sys_flag & ~HOSTS_MASK | self._store_flag
        if len(born_host) > 8:
            sys_flag |= BORN_IPV6
        size = HEAD_BYTES[sys_flag & HOSTS_MASK] + len(body) + len(part[1]) + 2 + len(raw)
        if len(raw) > MAX_PROPERTIES_BYTES or len(body) > self._max_body_bytes or size > self._max_record_bytes:
            return self.limits.too_large(len(body), len(raw), size)
        if b"\0" in raw and looks_lost(raw):
            return lost_properties()
        log_offset = self.wrote
        if log_offset + size > self._limit:
            log_offset = self._make_room(size)
        numbered = not sys_flag & TRANSACTION_PREPARED
        key = (topic, message.queue_id)
        queue_offset = self.queue_offsets.get(key, 0) if numbered else 0
        store_ms = self._clock.now_ms()
        if store_ms < self.last_store_ms:
            store_ms = self.last_store_ms
        head = _new_tuple(
            RecordHead,
            (
                part[0], part[1], message.queue_id, queue_offset, log_offset, message.flag, sys_flag, message.born_ms,
                born_host, store_ms, self._store_host, message.reconsume_times, message.prepared_log_offset,
            ),
        )  # fmt: skip
        write_record(self._view, log_offset - self._base, head, body, raw)
        self.wrote = next_log_offset = log_offset + size
        self.last_store_ms = store_ms
        if numbered:
            self.queue_offsets[key] = queue_offset + 1
        properties = message.properties
        tags = properties.get(TAGS)
        entry = _new_tuple(
            LogEntry,
            (
                log_offset, size, topic, message.queue_id, queue_offset, tag_hash(tags) if tags else 0, store_ms,
                sys_flag, properties,
            ),
        )  # fmt: skip
        self._note(log_offset, {topic}, [entry])
        return _new_tuple(AppendResult, (_OK, log_offset, queue_offset, size, store_ms, next_log_offset, (), ""))

    def _note(self, start: int, topics: set[str], entries: list[LogEntry] | None) -> None:
        """What was just written from `start` on is to be dispatched; None: its entries are read from the log."""
        appended = self.appended
        last = appended[-1] if appended else None
        if last is None or last.end != start or (last.entries is None) != (entries is None):
            appended.append(AppendedRange(start, self.wrote, topics, entries))
            return
        last.end = self.wrote
        last.topics |= topics
        if entries is not None and last.entries is not None:
            last.entries += entries

    def reserve(self, size: int) -> Room | None:
        """Room for about `size` bytes of records, or less near the end of a file; None: there is none without a new file."""
        start = self.wrote
        if self._limit - start < size:
            self._go_further(size)
            if start >= self._limit:
                return None
        return Room(self._view, self._base, start, self._limit, self._now(), self.queue_offsets)

    def append_reserved(self, room: Room, end: int, topics: set[str]) -> None:
        """Records of these topics now fill the room up to `end`."""
        self.wrote = end
        self.last_store_ms = room.store_ms
        self._note(room.start, topics, None)

    def append_records(self, data: Buffer, topics: set[str], store_ms: int) -> None:
        """Sound records of another log, from `wrote` on, all of one file; `store_ms` is the newest of their store times."""
        end = self.wrote + len(data)
        if end > self._limit:
            if self.staging is not None:
                raise StoreError(
                    "a log with a transient pool cannot follow another one: set transientStorePoolEnable=false"
                )
            self._use(self.file.add(self.wrote), end)
        start = self.wrote
        self._view[start - self._base : end - self._base] = data
        self.wrote = end
        self.last_store_ms = max(self.last_store_ms, store_ms)
        self._note(start, topics, None)

    def write_blank(self, log_offset: int, data: Buffer) -> None:
        """Bytes of another log's blank. They do not count until `pass_blank` is called."""
        segment = self.file.add(log_offset)
        position = log_offset - segment.base
        segment.reserve(position + len(data), RESERVE_BYTES)
        segment.open()[position : position + len(data)] = data

    def pass_blank(self) -> None:
        """The rest of the current file is a blank: records go on in the next one."""
        self.wrote = self.file.add(self.wrote).next_base

    def abandon(self, room: Room) -> None:
        """Take back what was written into a room by somebody who failed half way: its records and their numbers.

        Numbers that no record has would leave holes in queues.
        """
        view, base, log_offset, _, store_ms, numbers = room
        while (position := log_offset - base) + MIN_RECORD_BYTES <= len(view):
            size = read_start(view, position)[0]
            if not is_sound_record(view, position, size, log_offset):
                return
            entry = log_entry(decode_record(view, position, position + size))
            if entry.store_ms != store_ms:
                return  # left over from an earlier use of this file
            key = entry.topic, entry.queue_id
            numbers[key] = min(numbers.get(key, 0), entry.queue_offset)
            view[position : position + BLANK_BYTES] = bytes(BLANK_BYTES)
            log_offset += size

    def entries_of(self, appended: AppendedRange) -> list[LogEntry]:
        """What queues and index need of each record of a range, with all properties."""
        if appended.entries is None:
            appended.entries = read_entries(*self.memory_of(appended), appended.start, appended.end)
        return appended.entries

    def record_end(self, appended: AppendedRange, limit: int) -> int:
        """Where the last whole record of a range ends that ends at or before `limit`; the start of the range: none does."""
        view, base = self.memory_of(appended)
        end = appended.start
        while end < limit and (next_end := end + read_start(view, end - base)[0]) <= limit:
            end = next_end
        return end

    def memory_of(self, appended: AppendedRange) -> tuple[memoryview, int]:
        """The file a range is in, and the log offset it begins at."""
        if appended.start >= self._base and self._limit:
            return self._view, self._base
        segment = self.file.segment_at(appended.start)
        if segment is None:
            raise StoreError(f"{self.file.folder} has no file with the records from {appended.start} on any more")
        return segment.open(), segment.base

    def append_batch(self, common: StoreMessage, items: Sequence[BatchItem]) -> AppendResult:
        """Store several messages of one queue as neighbours in one file; what they share comes from `common`."""
        part = self._topic_parts.get(common.topic) or self._learn(common.topic)
        if part is None or common.queue_id < 0:
            return badly_placed(common.topic, common.queue_id)
        magic, topic_bytes = part
        sys_flag = common.sys_flag & ~HOSTS_MASK | self._store_flag | (BORN_IPV6 if len(common.born_host) > 8 else 0)
        total = self.limits.measured(items, record_size(0, len(topic_bytes), 0, sys_flag))
        if isinstance(total, AppendResult):
            return total
        first_log_offset = self._make_room(total) if self.wrote + total > self._limit else self.wrote
        numbered = not sys_flag & TRANSACTION_PREPARED
        key = (common.topic, common.queue_id)
        first_queue_offset = self.queue_offsets.get(key, 0) if numbered else 0
        store_ms = self._now()
        head = RecordHead(
            magic=magic,
            topic=topic_bytes,
            queue_id=common.queue_id,
            queue_offset=first_queue_offset,
            log_offset=first_log_offset,
            flag=0,
            sys_flag=sys_flag,
            born_ms=common.born_ms,
            born_host=common.born_host,
            store_ms=store_ms,
            store_host=self._store_host,
            reconsume_times=common.reconsume_times,
            prepared_log_offset=common.prepared_log_offset,
        )
        place = self._view[first_log_offset - self._base : first_log_offset - self._base + total]
        entries = write_batch(place, head, items, common.topic, LogEntry)
        self.wrote = next_log_offset = first_log_offset + total
        self.last_store_ms = store_ms
        if numbered:
            self.queue_offsets[key] = first_queue_offset + len(entries)
        self._note(first_log_offset, {common.topic}, entries)
        return AppendResult(
            _OK, LogOffset(first_log_offset), QueueOffset(first_queue_offset), total, store_ms,
            LogOffset(next_log_offset), tuple([entry[0] for entry in entries]),
        )  # fmt: skip

    def _learn(self, topic: str) -> tuple[int, bytes] | None:
        if not is_storable_topic(topic):
            return None
        part = self._topic_parts[topic] = topic_part(topic)
        return part

    def _now(self) -> int:
        now_ms = self._clock.now_ms()
        return now_ms if now_ms > self.last_store_ms else self.last_store_ms

    def _make_room(self, size: int) -> int:
        """Where `size` bytes may be written: reserves, warms and rolls as needed; nothing has changed when it raises."""
        segment = self.file.segment_at(self.wrote)
        if segment is None or self.wrote + size + BLANK_BYTES > segment.next_base:
            segment = self._roll(segment)
        self._use(segment, self.wrote + size)
        return self.wrote

    def _roll(self, full: Segment | None) -> Segment:
        if full is None:
            return self.file.add(self.wrote)
        position = self.wrote - full.base
        full.reserve(position + BLANK_BYTES, RESERVE_BYTES)
        following = self.file.add(full.next_base)
        following.reserve(1, RESERVE_BYTES)
        blank = encode_blank(full.size - position)
        if self.staging is None:
            full.open()[position : position + BLANK_BYTES] = blank
            self.wrote = full.next_base
        else:
            self._roll_staged(self.staging, full, following, blank)
        return following

    def _roll_staged(self, staging: Staging, full: Segment, following: Segment, blank: bytes) -> None:
        staged = staging.current
        staging.begin(following)
        position = self.wrote - full.base
        (full.open() if staged is None else staged.buffer)[position : position + BLANK_BYTES] = blank
        if staged is not None:
            staged.end = self.wrote + BLANK_BYTES
        self.wrote = full.next_base
        # Now, or the committer would look before there is a full file to see.
        staging.on_full()

    def _use(self, segment: Segment, end: int) -> None:
        """Let the append path write into `segment` up to `end` and somewhat further."""
        self._view, self._limit = self._memory.ahead(segment, self.wrote, end)
        self._base = segment.base
        self._memory.prepare_next(segment, end)

    def stage(self, staging: Staging) -> None:
        """From now on, once the log is recovered, records are written to buffers first."""
        self.staging = self._memory.staging = staging

    def prepare_first(self) -> None:
        """Have the first file of a log without any made in the background."""
        self._memory.prepare_first(self.wrote)

    def _go_further(self, size: int) -> None:
        """Have some more room in the current file, if it is to be had: who needs it or another file calls `_make_room`."""
        segment = self.file.segment_at(self.wrote)
        if self._limit and segment is not None and self.wrote + size + BLANK_BYTES <= segment.next_base:
            with suppress(StoreError):
                self._use(segment, self.wrote + size)

    def forget_cold(self) -> None:
        """Give back the memory of all but the log's end, whatever was read there; safe in the flusher thread."""
        self._memory.forget_before(self.wrote)

    def set_end(self, log_offset: int, last_store_ms: int) -> None:
        """Continue after `log_offset`, once recovery knows that everything before it is sound."""
        self.wrote = log_offset
        self.last_store_ms = max(self.last_store_ms, last_store_ms)
        self._limit = 0
        self._memory.start_over()

    @property
    def readable(self) -> int:
        """Everything below is in the files, where readers and the flusher find it; any thread."""
        staging = self.staging
        return self.wrote if staging is None else staging.committed

    @property
    def readable_ms(self) -> int:
        """Store time of a readable message, the last one or an earlier one. Ask for it before `readable`."""
        staging = self.staging
        return self.last_store_ms if staging is None else staging.committed_ms

    def commit(self) -> None:
        """Make everything written so far readable; any thread. A StoreError is final."""
        if self.staging is not None:
            store_ms = self.last_store_ms
            self.staging.commit(self.wrote, store_ms)

    @property
    def min_offset(self) -> int:
        return self.file.min_offset

    @property
    def flushed(self) -> int:
        return self.file.flushed

    def record_at(self, log_offset: int) -> memoryview | None:
        """The record that starts at `log_offset`; None when none does."""
        segment = self.file.segment_at(log_offset)
        if segment is None:
            return None
        end = min(self.readable, segment.next_base)
        if log_offset < 0 or log_offset + MIN_RECORD_BYTES > end:
            return None
        view, position = segment.open(), log_offset - segment.base
        size, magic = read_start(view, position)
        if magic not in (MAGIC_V1, MAGIC_V2) or size < MIN_RECORD_BYTES:
            return None
        if log_offset + size > end:
            return None
        # Anyone may ask for any offset: bytes that only look like a record, inside a body, do not name their own place.
        if _LONG.unpack_from(view, position + LOG_OFFSET_AT)[0] != log_offset:
            return None
        return view[position : position + size]

    def sound_record_at(self, log_offset: int) -> memoryview | None:
        """As `record_at`, and its body matches its checksum."""
        record = self.record_at(log_offset)
        return record if record is not None and is_sound_record(record, 0, len(record), log_offset) else None

    def store_ms_at(self, log_offset: int) -> int:
        """When the record at `log_offset` was stored; -1 when it is gone."""
        segment = self.file.segment_at(log_offset)
        if segment is None or not 0 <= log_offset <= self.readable - MIN_RECORD_BYTES:
            return -1
        return record_store_ms(segment.open(), log_offset - segment.base)

    def close(self) -> None:
        self._view = memoryview(b"")
        self._limit = 0
        self._memory.close()
        if self.staging is not None:
            self.staging.close()
        self.file.close()


def record_store_ms(view: Buffer, position: int) -> int:
    """The store time of the record at a position, without decoding the rest."""
    if _INT.unpack_from(view, position + SYS_FLAG_AT)[0] & BORN_IPV6:
        position += IPV6_EXTRA_BYTES
    store_ms: int = _LONG.unpack_from(view, position + STORE_MS_AT)[0]
    return store_ms


_OK = AppendStatus.OK
# A NamedTuple's own constructor goes through a Python-level function; at a message each that is worth avoiding.
_new_tuple = tuple.__new__
