"""Finding a message again whose consume-queue unit is wrong.

The records of a queue lie in the log in the order of their numbers. So the record a unit should point at lies between
those of the units before and after it, and it says itself which topic, queue and number it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketline.errors import CorruptRecord
from rocketline.protocol.record_layout import MAGIC_BLANK
from rocketline.protocol.records import Record, decode_record, log_entry, read_start
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.queue.consume_queue import FILLER_SIZE, ConsumeQueue
from rocketline.store.queue.tags_codes import TagsCodes
from rocketline.store.reading.damage import Damage

_UNITS_LOOKED_AT = 64
_SEARCH_BYTES = 64 << 20

Mended = tuple[int, memoryview]


def mend_unit(
    log: CommitLog, queue: ConsumeQueue, queue_offset: int, codes: TagsCodes, damage: Damage
) -> Mended | None:
    """(log offset, record) of a message whose unit led nowhere; the unit is put right. None: the record is damaged."""
    unit = queue.unit(queue_offset)
    if unit is None or unit[0] in damage or (unit[1] == FILLER_SIZE and unit[0] == 0):
        return None
    found = _search(log, queue, queue_offset)
    if found is None:
        damage.record_at(unit[0], f"message {queue_offset} of {queue.topic}/{queue.queue_id} is not readable there")
        return None
    record = log.sound_record_at(found.log_offset)
    if record is None:
        damage.record_at(found.log_offset, "its body does not match its checksum")
        return None
    if unit[:2] != (found.log_offset, found.size):
        queue.replace(queue_offset, found.log_offset, found.size, codes.own(log_entry(found)))
        damage.unit_mended(queue.topic, queue.queue_id, queue_offset)
    return found.log_offset, record


def _search(log: CommitLog, queue: ConsumeQueue, queue_offset: int) -> Record | None:
    start, end = _bounds(log, queue, queue_offset)
    for record in _records(log, start, min(end, start + _SEARCH_BYTES)):
        if (record.topic, record.queue_id, record.queue_offset) == (queue.topic, queue.queue_id, queue_offset):
            return record
    return None


def _bounds(log: CommitLog, queue: ConsumeQueue, queue_offset: int) -> tuple[int, int]:
    """Log offsets between which the record of a unit must lie, by the nearest units that are right."""
    start, end = log.min_offset, log.readable
    for number in range(queue_offset - 1, max(queue.min_offset, queue_offset - _UNITS_LOOKED_AT) - 1, -1):
        if queue.is_sound(log, number, log.readable) and (unit := queue.unit(number)):
            start = max(start, unit[0] + unit[1])
            break
    for number in range(queue_offset + 1, min(queue.max_offset, queue_offset + _UNITS_LOOKED_AT)):
        if queue.is_sound(log, number, log.readable) and (unit := queue.unit(number)):
            end = unit[0]
            break
    return start, end


def _records(log: CommitLog, start: int, end: int) -> Iterator[Record]:
    """Records from `start` on, as far as they can be followed."""
    offset = start
    while offset < end and (segment := log.file.segment_at(offset)) is not None:
        view, position = segment.open(), offset - segment.base
        if segment.size - position < 8 or read_start(view, position)[1] == MAGIC_BLANK:
            offset = segment.next_base
            continue
        try:
            record = decode_record(view, position, segment.size)
        except CorruptRecord:
            return
        yield record
        offset += record.size
