"""Cutting the end off an open store: a replica that has what its master never had.

The log is cut at a record, and consume queues, key index and progress marks with it, by what recovery uses for the same
parts. A crash in between is harmless: before anything is cut, the marks are made to say that nothing is known, and the next
start reads the log as it finds it.
"""

from __future__ import annotations

import logging

import msgspec

from rocketline.errors import StoreError
from rocketline.protocol.records import LogEntry, decode_record, log_entry
from rocketline.store.flush.progress import ProgressFile
from rocketline.store.queue.consume_queue import FILLER_SIZE
from rocketline.store.recovery.scan import LogScan
from rocketline.store.store_parts import StoreParts

log = logging.getLogger(__name__)


def last_record_below(parts: StoreParts, end: int) -> LogEntry | None:
    """The record that ends at `end`; None when the log begins there. StoreError when no record ends there."""
    commit_log = parts.log
    if end == commit_log.min_offset:
        return None
    # Nearly every record is listed in a queue, and then this is quick.
    for queue in parts.queues:
        queue_offset = queue.count_below(end)
        unit = queue.unit(queue_offset - 1)
        if unit is not None and unit[1] != FILLER_SIZE and unit[0] + unit[1] == end:
            record = commit_log.record_at(unit[0])
            if record is not None:
                return log_entry(decode_record(record, 0, len(record)))
    segment = commit_log.file.segment_at(end - 1)
    if segment is None:
        raise StoreError(f"the log cannot be cut at {end}: it has no file there")
    scan = LogScan(commit_log.file, segment.base, end=end, check_crc=False)
    last = None
    for rows in scan.rows():
        last = rows[-1] if rows else last
    if scan.next_log_offset != end:
        raise StoreError(f"the log cannot be cut at {end}: no record ends there")
    return LogEntry._make(last) if last is not None else None


def cut_store(parts: StoreParts, progress: ProgressFile, end: int) -> None:
    """Remove everything from log offset `end` on, where a record ends. Nobody flushes meanwhile."""
    commit_log, dispatcher = parts.log, parts.dispatcher
    last = last_record_below(parts, end)
    log.warning("cutting %d bytes off the log, from %d on", commit_log.wrote - end, end)
    _forget_marks(progress, commit_log.min_offset, min(end, commit_log.flushed))
    for key, queue in parts.queues.by_key.items():
        queue.cut_back(end)
        commit_log.queue_offsets[key] = queue.max_offset
    if parts.index is not None:
        parts.index.cut_back(end)
    commit_log.file.truncate(end, keep_first=True)
    commit_log.set_end(end, 0)
    appended = commit_log.appended
    while appended and appended[-1].end > end:
        found = appended.pop()
        if found.start < end:
            appended.append(found.split(end))
    if dispatcher.dispatched > end:
        dispatcher.dispatched = end
        dispatcher.last = last


def _forget_marks(progress: ProgressFile, log_min_offset: int, flushed: int) -> None:
    progress.note_flushed(flushed)
    if progress.mark is not None:
        nothing = msgspec.structs.replace(
            progress.mark, safe=log_min_offset, last_record=(0, 0, 0), index=None, closed=False
        )
        progress.save(nothing)
