"""Reading messages by queue offset.

A read looks at units of one consume-queue file, picks those that match, and returns their records as slices of the log;
records that are neighbours in the log become one slice, and small ones that are scattered may become one copy. Limits: the
caller's, those of messages in memory or on disk, and 800 units looked at; the first message always fits. A caller that asks
for more messages than the usual limit allows is a bulk reader, for whom larger limits hold: a few long answers cost it and
us far less than many short ones.

A record whose bytes do not match its checksum is left out and reported. A unit that does not point at its record is
mended from the log, where that still has it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from rocketline.protocol.records import is_sound_record
from rocketline.protocol.subscription import TagTest
from rocketline.store.config import UNIT_BYTES, ReadConfig
from rocketline.store.files.segment import Segment
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.queue.consume_queue import FILLER_SIZE, UNIT, ConsumeQueue
from rocketline.store.queue.ext_queue import ADDRESS_MAX
from rocketline.store.queue.tags_codes import AcceptExt, AcceptTags, TagsCodes
from rocketline.store.reading.damage import Damage
from rocketline.store.reading.read_result import ReadResult, ReadStatus
from rocketline.store.reading.unit_repair import mend_unit
from rocketline.store.reading.verified_read import verified_run
from rocketline.system.processes import total_memory_bytes

AcceptRecord = Callable[[memoryview], bool]

MAX_READ_BYTES = 128 << 20
MIN_SCAN_BYTES = 16_000
COPIED_BYTES = 64 << 10
"""Records that lie scattered become one copy, up to so many bytes."""

_FOUND, _NO_MATCH = ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE


class _Limits(NamedTuple):
    memory_messages: int
    memory_bytes: int
    disk_messages: int
    disk_bytes: int


class Reader:
    def __init__(self, log: CommitLog, config: ReadConfig, codes: TagsCodes, damage: Damage, check_crc: bool) -> None:
        self._log = log
        self._damage = damage
        self._check_crc = check_crc
        self._usual = _Limits(config.memory_messages, config.memory_bytes, config.disk_messages, config.disk_bytes)
        self._bulk = _bulk_limits(config, self._usual)
        self._codes = codes
        self._memory_bytes = total_memory_bytes() * config.memory_ratio // 100
        self._home: Segment | None = None
        """The file of the log that was read last, which is mostly the next one too."""

    def in_memory(self, log_offset: int) -> bool:
        """Whether the page cache likely still has what was written at `log_offset`."""
        return self._log.wrote - log_offset <= self._memory_bytes

    def record_at(self, log_offset: int) -> memoryview | None:
        """The record at a log offset; None when none begins there, or a damaged one."""
        log = self._log
        record = log.record_at(log_offset)
        if record is not None and self._check_crc and not is_sound_record(record, 0, len(record), log_offset):
            self._damage.record_at(log_offset, "its body does not match its checksum")
            return None
        return record

    def read(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        max_messages: int,
        accept_tags: AcceptTags | None,
        accept_record: AcceptRecord | None,
        max_bytes: int,
        accept_ext: AcceptExt | None,
    ) -> ReadResult:
        if accept_record is None and accept_ext is None and (accept_tags is None or type(accept_tags) is TagTest):
            found = self.read_verified(queue, queue_offset, *self.limited(max_messages, max_bytes), accept_tags)
            if found is not None:
                return found
        if not queue.min_offset <= queue_offset < queue.max_offset:
            return _out_of_range(queue, queue_offset)
        limits = self._usual
        if max_messages > limits.memory_messages:
            limits = self._bulk
            max_messages = min(max_messages, limits.memory_messages)
        units = queue.units(queue_offset, max(MIN_SCAN_BYTES, max_messages * UNIT_BYTES))
        if not units:
            return _nothing(queue, ReadStatus.OFFSET_FOUND_NULL, queue.next_file_offset(queue_offset))
        return self._read_picking(
            queue, units, queue_offset, max_messages, accept_tags, accept_record, max_bytes, accept_ext, limits
        )

    @property
    def usual_messages(self) -> int:
        """The most messages of a read that is no bulk read."""
        return self._usual.memory_messages

    def limited(self, max_messages: int, max_bytes: int) -> tuple[int, int]:
        """How many messages and bytes somebody gets who asks for so many, of what is in memory."""
        limits = self._usual if max_messages <= self._usual.memory_messages else self._bulk
        return max(1, min(max_messages, limits.memory_messages)), min(max_bytes, limits.memory_bytes)

    def read_verified(
        self, queue: ConsumeQueue, queue_offset: int, count: int, max_bytes: int, test: TagTest | None
    ) -> ReadResult | None:
        """Read where nothing is to be repaired or explained, the end of the queue included; None: read one by one. Limits
        are `limited`."""
        if not queue.min_offset <= queue_offset < queue.max_offset:
            at_end = 0 < queue_offset == queue.max_offset >= queue.min_offset
            return _nothing(queue, ReadStatus.OFFSET_OVERFLOW_ONE, queue_offset) if at_end else None
        size = count * UNIT_BYTES
        units = queue.units(queue_offset, size if test is None or size > MIN_SCAN_BYTES else MIN_SCAN_BYTES)
        if not units:
            return None
        home, log = self._home, self._log
        run = None
        while run is None:
            view = None if home is None else home.view
            if home is not None and view is not None:
                run = verified_run(
                    units, count, max_bytes, view, home.base, log.readable, queue.queue_id, queue_offset, self._check_crc,
                    None if test is None else test.packed, log.wrote - self._memory_bytes,
                )  # fmt: skip
            if run is None:
                other = log.file.segment_at(UNIT.unpack_from(units)[0])
                if other is None or (other is home and view is not None):
                    return None
                other.open()
                home = self._home = other
        looked, taken, total, chunks = run
        status = _FOUND if taken else _NO_MATCH
        found = status, queue_offset + looked, queue.min_offset, queue.max_offset, chunks, taken, total, False
        return _new_result(ReadResult, found)

    def _read_picking(
        self,
        queue: ConsumeQueue,
        units: memoryview,
        queue_offset: int,
        max_messages: int,
        accept_tags: AcceptTags | None,
        accept_record: AcceptRecord | None,
        max_bytes: int,
        accept_ext: AcceptExt | None,
        limits: _Limits,
    ) -> ReadResult:
        log = self._log
        picked = _Picked(limits, max_messages, max_bytes)
        status = _NO_MATCH
        scanned = len(units) // UNIT_BYTES
        for number in _candidates(units, accept_tags):
            log_offset, size, tags_code = UNIT.unpack_from(units, number * UNIT_BYTES)
            if tags_code <= ADDRESS_MAX:
                if not self._codes.accepts(queue, log_offset, tags_code, accept_tags, accept_ext):
                    continue
            elif accept_tags is not None and not accept_tags(tags_code):
                continue
            if picked.is_full(size, self.in_memory(log_offset)):
                scanned = number
                break
            record = self._record(log_offset, size, queue.queue_id, queue_offset + number)
            if record is None:
                status = ReadStatus.MESSAGE_WAS_REMOVING
                if log_offset < log.min_offset and size > 0:
                    continue
                mended = mend_unit(log, queue, queue_offset + number, self._codes, self._damage)
                if mended is None:
                    continue
                log_offset, record = mended
                if picked.is_full(len(record), self.in_memory(log_offset)):
                    scanned = number
                    break
            if accept_record is not None and not accept_record(record):
                continue
            picked.add(log_offset, record)
        last_log_offset = UNIT.unpack_from(units, (scanned - 1) * UNIT_BYTES)[0]
        lagging = not self.in_memory(last_log_offset)
        chunks = picked.chunks(log)
        if picked.count:
            status = _FOUND
        return ReadResult(
            status,
            queue_offset + scanned,
            queue.min_offset,
            queue.max_offset,
            chunks,
            picked.count,
            picked.total,
            lagging,
        )

    def _record(self, log_offset: int, size: int, queue_id: int, queue_offset: int) -> memoryview | None:
        log = self._log
        if size <= 0 or size == FILLER_SIZE or log_offset + size > log.readable:
            return None
        record = log.file.slice(log_offset, log_offset + size)
        if record is None or (
            self._check_crc and not is_sound_record(record, 0, size, log_offset, queue_id, queue_offset)
        ):
            return None
        return record


class _Picked:
    """The records a read has taken so far."""

    def __init__(self, limits: _Limits, max_messages: int, max_bytes: int) -> None:
        self.count = 0
        self.total = 0
        self._limits = limits
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._spans: list[list[int]] = []

    def is_full(self, size: int, in_memory: bool) -> bool:
        if not self.count:
            return False
        limits = self._limits
        messages, limit = limits[:2] if in_memory else limits[2:]
        return self.count >= min(self._max_messages, messages) or self.total + size > min(self._max_bytes, limit)

    def add(self, log_offset: int, record: memoryview) -> None:
        size = len(record)
        if self._spans and self._spans[-1][1] == log_offset:
            self._spans[-1][1] += size
        else:
            self._spans.append([log_offset, log_offset + size])
        self.count += 1
        self.total += size

    def chunks(self, log: CommitLog) -> list[memoryview]:
        slices = [log.file.slice(start, end) for start, end in self._spans]
        found = [chunk for chunk in slices if chunk is not None]
        return [memoryview(b"".join(found))] if len(found) > 1 and self.total <= COPIED_BYTES else found


@lru_cache(maxsize=16)
def _tags_codes(count: int) -> struct.Struct:
    return struct.Struct(">" + "12xq" * count)


def _candidates(units: memoryview, accept_tags: AcceptTags | None) -> Iterable[int]:
    """Numbers of the units that may match, as far as a look at all their codes at once can tell."""
    count = len(units) // UNIT_BYTES
    if type(accept_tags) is not TagTest:
        return range(count)
    wanted = accept_tags.codes
    return [
        number
        for number, code in enumerate(_tags_codes(count).unpack(units))
        if code in wanted or not -0x80000000 <= code <= 0x7FFFFFFF
    ]


def _bulk_limits(config: ReadConfig, usual: _Limits) -> _Limits:
    messages = config.bulk_messages
    if messages <= usual.memory_messages:
        return usual
    size = max(config.bulk_bytes, usual.memory_bytes)
    # Pages that are not in memory are waited for by everybody.
    return _Limits(messages, size, max(messages // 4, usual.disk_messages), max(size // 4, usual.disk_bytes))


def _out_of_range(queue: ConsumeQueue, queue_offset: int) -> ReadResult:
    if queue.max_offset == 0:
        return _nothing(queue, ReadStatus.NO_MESSAGE_IN_QUEUE, 0)
    if queue_offset < queue.min_offset:
        return _nothing(queue, ReadStatus.OFFSET_TOO_SMALL, queue.min_offset)
    if queue_offset == queue.max_offset:
        return _nothing(queue, ReadStatus.OFFSET_OVERFLOW_ONE, queue_offset)
    return _nothing(queue, ReadStatus.OFFSET_OVERFLOW_BADLY, queue.max_offset)


def _nothing(queue: ConsumeQueue, status: ReadStatus, next_queue_offset: int) -> ReadResult:
    return ReadResult(status, next_queue_offset, queue.min_offset, queue.max_offset, [], 0, 0, False)


def no_such_queue() -> ReadResult:
    return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [], 0, 0, False)


_new_result = tuple.__new__
