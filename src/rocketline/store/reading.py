"""Reading messages by queue offset.

A read looks at units of one consume-queue file, picks those that match, and returns their records as slices of the log;
records that are neighbours in the log become one slice. Limits: the caller's, those of messages in memory or on disk, and
800 units looked at; the first message always fits. A caller that asks for more messages than the usual limit allows is
a bulk reader, for whom larger limits hold: a few long answers cost it and us far less than many short ones.

A record whose bytes do not match its checksum is left out and reported. A unit that does not point at its record is
mended from the log, where that still has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rocketline._impl import quick
from rocketline.protocol.records import is_sound_record
from rocketline.store.commit_log import CommitLog
from rocketline.store.config import UNIT_BYTES, ReadConfig
from rocketline.store.consume_queue import FILLER_SIZE, UNIT, ConsumeQueue
from rocketline.store.damage import Damage
from rocketline.store.ext_queue import ADDRESS_MAX
from rocketline.store.mending import mend_unit
from rocketline.store.read_result import ReadResult, ReadStatus
from rocketline.store.segment import total_memory_bytes
from rocketline.store.tags_codes import AcceptExt, AcceptTags, TagsCodes

AcceptRecord = Callable[[memoryview], bool]

MAX_READ_BYTES = 128 << 20
MIN_SCAN_BYTES = 16_000

_FOUND = ReadStatus.FOUND
_sound_run: Callable[..., tuple[int, int, list[tuple[int, int]]] | None] | None = quick("sound_run")


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
        if not queue.min_offset <= queue_offset < queue.max_offset:
            return _out_of_range(queue, queue_offset)
        limits = self._usual
        if max_messages > limits.memory_messages:
            limits = self._bulk
            max_messages = min(max_messages, limits.memory_messages)
        units = queue.units(queue_offset, max(MIN_SCAN_BYTES, max_messages * UNIT_BYTES))
        if not units:
            return _nothing(queue, ReadStatus.OFFSET_FOUND_NULL, queue.next_file_offset(queue_offset))
        if accept_tags is None and accept_record is None and accept_ext is None:
            found = self._read_plain(queue, units, queue_offset, max_messages, max_bytes, limits)
            if found is not None:
                return found
        return self._read_picking(
            queue, units, queue_offset, max_messages, accept_tags, accept_record, max_bytes, accept_ext, limits
        )

    def _read_plain(
        self,
        queue: ConsumeQueue,
        units: memoryview,
        queue_offset: int,
        max_messages: int,
        max_bytes: int,
        limits: _Limits,
    ) -> ReadResult | None:
        """Everything matches, is in memory and is sound: nothing to choose. None when not so."""
        log, check_crc = self._log, self._check_crc
        first, size, _ = UNIT.unpack_from(units)
        if first < log.file.min_offset or size <= 0 or not self.in_memory(first):
            return None
        count = max(1, min(max_messages, limits.memory_messages))
        max_bytes = min(max_bytes, limits.memory_bytes)
        if _sound_run is not None and (home := log.file.segment_at(first)) is not None:
            view = home.open()
            run = _sound_run(
                units, count, max_bytes, view, home.base, log.readable, queue.queue_id, queue_offset, check_crc
            )
            if run is not None:
                return _result(queue, queue_offset, view, home.base, *run)
        spans: list[tuple[int, int]] = []
        start = end = first
        total = taken = 0
        view = memoryview(b"")
        view_start = view_end = 0
        queue_id = queue.queue_id
        for log_offset, size, _ in UNIT.iter_unpack(units[: count * UNIT_BYTES]):
            if total + size > max_bytes and total:
                break
            if check_crc:
                if not view_start <= log_offset < view_end:
                    segment = log.file.segment_at(log_offset)
                    if segment is None:
                        return None
                    view, view_start, view_end = segment.open(), segment.base, segment.next_base
                if log_offset + size > view_end or not is_sound_record(
                    view, log_offset - view_start, size, log_offset, queue_id, queue_offset + taken
                ):
                    return None
            if log_offset != end:
                spans.append((start, end))
                start = log_offset
            end = log_offset + size
            total += size
            taken += 1
        spans.append((start, end))
        chunks = []
        readable = log.readable
        for start, end in spans:
            chunk = log.file.slice(start, end)
            if chunk is None or start >= end or end > readable:
                return None
            chunks.append(chunk)
        return _new_result(
            ReadResult,
            (_FOUND, queue_offset + taken, queue.min_offset, queue.max_offset, chunks, taken, total, False),
        )

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
        status = ReadStatus.NO_MATCHED_MESSAGE
        scanned = 0
        log_offset = log.min_offset
        for log_offset, size, tags_code in UNIT.iter_unpack(units):
            scanned += 1
            if tags_code <= ADDRESS_MAX:
                if not self._codes.accepts(queue, log_offset, tags_code, accept_tags, accept_ext):
                    continue
            elif accept_tags is not None and not accept_tags(tags_code):
                continue
            record = self._record(log_offset, size, queue.queue_id, queue_offset + scanned - 1)
            if record is None:
                status = ReadStatus.MESSAGE_WAS_REMOVING
                if log_offset < log.min_offset and size > 0:
                    continue
                mended = mend_unit(log, queue, queue_offset + scanned - 1, self._codes, self._damage)
                if mended is None:
                    continue
                log_offset, record = mended
                size = len(record)
            if picked.is_full(size, self.in_memory(log_offset)):
                scanned -= 1
                break
            if accept_record is not None and not accept_record(record):
                continue
            picked.add(log_offset, record)
        lagging = not self.in_memory(log_offset)
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
        return [chunk for chunk in slices if chunk is not None]


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


def _result(
    queue: ConsumeQueue,
    queue_offset: int,
    view: memoryview,
    base: int,
    taken: int,
    total: int,
    spans: list[tuple[int, int]],
) -> ReadResult:
    """What stretches of one file, which begins at `base`, hold."""
    chunks = [view[start - base : end - base] for start, end in spans]
    return _new_result(
        ReadResult,
        (_FOUND, queue_offset + taken, queue.min_offset, queue.max_offset, chunks, taken, total, False),
    )


_new_result = tuple.__new__
