"""Making a store whole again when it is opened.

After a clean stop the consume queues say where the log ends: only what lies after the last message they list is read. After
a crash (the `abort` file is still there) nothing written since the last checkpoint is trusted: the log is read from the
newest file that began well before the checkpoint, consume queues and key index are cut back to the same point, and every
record found is dispatched again. Either way reading ends at the first bytes that are no sound record; the log is cut there,
durably.

A power failure loses some sectors and keeps others. A body is covered by its checksum; a lost sector in the rest of a record
is seen by its zeros.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from rocketline.errors import CorruptRecord
from rocketline.protocol.records import (
    BLANK_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    LogEntry,
    Record,
    decode_record,
    log_entry,
    read_start,
)
from rocketline.store.checkpoint import Checkpoint
from rocketline.store.commit_log import CommitLog, record_store_ms
from rocketline.store.consume_queue import FILLER_SIZE, ConsumeQueues
from rocketline.store.dispatch import Dispatcher
from rocketline.store.key_index import KeyIndex
from rocketline.store.segment import Segment

SECTOR_BYTES = 512
_CHECKPOINT_MARGIN_MS = 3000
_BATCH = 4096
_LOOK_BYTES = 4096

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecoveryReport:
    """What opening a store found and did."""

    after_crash: bool
    log_min_offset: int
    log_next_offset: int
    scanned_from: int
    records_scanned: int
    ended_by: str
    """Why reading the log stopped where it did."""
    files_deleted: int
    queue_count: int


class Recovery:
    """One recovery; `run` once."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        check_crc: bool,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._check_crc = check_crc
        self._records_scanned = 0
        self._last_store_ms = 0
        self._ended_by = "the end of the log"

    def run(self, after_crash: bool) -> RecoveryReport:
        file = self._log.file
        last = file.last
        if last is None:
            self._queues.destroy()
            if self._index is not None:
                self._index.destroy()
            return self._report(after_crash, 0, 0)
        # Until the true end is known, everything in the files may be looked at.
        self._log.set_end(last.next_base, 0)
        start = None if after_crash else self._end_of_queues()
        if start is None:
            after_crash = True
            start = self._cut_back_to_checkpoint()
        end = self._replay(start)
        files_deleted = file.truncate(end, erase=after_crash or not self._zeros_follow(end))
        if after_crash:
            file.flushed = start
            file.flush(end)
        file.flushed = end
        self._log.set_end(end, self._last_store_ms)
        self._settle_queues()
        self._dispatcher.dispatched = end
        self._dispatcher.dispatched_ms = self._last_store_ms
        return self._report(after_crash, start, files_deleted)

    def _end_of_queues(self) -> int | None:
        """After a clean stop: end of the last record any queue lists; None when that is no record of the log."""
        newest: tuple[int, int] | None = None
        for queue in self._queues:
            queue.find_end()
            unit = queue.unit(queue.max_offset - 1)
            if unit is not None and unit[1] != FILLER_SIZE and (newest is None or unit[:2] > newest):
                newest = unit[:2]
        if newest is None or newest[0] < self._log.min_offset:
            return self._log.min_offset
        record = self._log.record_at(newest[0])
        if record is None or len(record) != newest[1]:
            log.warning("the log has no record at %d, as a queue says: recovering as after a crash", newest[0])
            return None
        self._last_store_ms = record_store_ms(record, 0)
        return sum(newest)

    def _cut_back_to_checkpoint(self) -> int:
        """After a crash: drop from queues and index what may be torn; returns where the log must be read from."""
        index = self._index
        safe_ms = self._checkpoint.safe_ms(with_index=index is not None)
        start = self._start_file(safe_ms - _CHECKPOINT_MARGIN_MS).base
        if index is not None:
            missing_from = index.recover_from_crash(self._checkpoint.index_ms)
            if missing_from is not None and missing_from < start:
                # Reading must begin at a record: anything else would look like the end of the log.
                start = missing_from if self._log.record_at(missing_from) else self._log.min_offset
        for queue in self._queues:
            queue.find_end_below(self._log, start)
        return start

    def _start_file(self, safe_ms: int) -> Segment:
        """The newest file whose first record was stored by `safe_ms`, or the oldest file."""
        segments = list(self._log.file)
        for segment in reversed(segments):
            if read_start(segment.open(), 0)[1] not in (MAGIC_V1, MAGIC_V2):
                continue
            store_ms = record_store_ms(segment.open(), 0)
            if 0 < store_ms <= safe_ms:
                return segment
        return segments[0]

    def _replay(self, start: int) -> int:
        """Dispatch every sound record from `start` on; returns where they end."""
        end = start
        batch: list[LogEntry] = []
        for next_offset, entry in self._entries(start):
            end = next_offset
            if entry is not None:
                batch.append(entry)
                self._last_store_ms = max(self._last_store_ms, entry.store_ms)
            if len(batch) >= _BATCH:
                self._dispatcher.replay(batch)
                batch.clear()
        self._dispatcher.replay(batch)
        return end

    def _entries(self, start: int) -> Iterator[tuple[int, LogEntry | None]]:
        """(end, entry) of each record from `start` on; a blank moves the end to the next file."""
        file = self._log.file
        offset = start
        while (segment := file.segment_at(offset)) is not None:
            position = offset - segment.base
            if segment.size - position < BLANK_BYTES:
                self._ended_by = f"no room for a record at {offset}"
                return
            if read_start(segment.open(), position)[1] == MAGIC_BLANK:
                offset = segment.next_base
                yield offset, None
                continue
            try:
                record = self._sound_record(segment, position)
            except CorruptRecord as error:
                if any(segment.open()[position : position + BLANK_BYTES]):
                    self._ended_by = f"no sound record at log offset {offset}: {error}"
                return
            self._records_scanned += 1
            offset += record.size
            yield offset, log_entry(record)

    def _sound_record(self, segment: Segment, position: int) -> Record:
        view = segment.open()
        record = decode_record(view, position, segment.size, self._check_crc)
        offset = segment.base + position
        if record.log_offset != offset:
            raise CorruptRecord(f"the record at {offset} says that it belongs at {record.log_offset}")
        if _has_lost_sector(view, position, record):
            raise CorruptRecord(f"a part of the record at {offset} never reached the disk")
        return record

    def _zeros_follow(self, offset: int) -> bool:
        """After a clean stop nothing follows the last record; a look at the next bytes is proof enough."""
        segment = self._log.file.segment_at(offset)
        if segment is None:
            return True
        position = offset - segment.base
        return not any(segment.open()[position : position + _LOOK_BYTES])

    def _settle_queues(self) -> None:
        """Find where each queue begins, now that the log is known, and number its next message."""
        for key, queue in self._queues.by_key.items():
            queue.follow_log_minimum(self._log.min_offset)
            queue.file.unmap()
            if queue.ext is not None:
                queue.ext.file.unmap()
            self._log.queue_offsets[key] = queue.max_offset

    def _report(self, after_crash: bool, start: int, files_deleted: int) -> RecoveryReport:
        return RecoveryReport(
            after_crash=after_crash,
            log_min_offset=self._log.min_offset,
            log_next_offset=self._log.wrote,
            scanned_from=start,
            records_scanned=self._records_scanned,
            ended_by=self._ended_by,
            files_deleted=files_deleted,
            queue_count=len(self._queues.by_key),
        )


def _has_lost_sector(view: memoryview, position: int, record: Record) -> bool:
    """Whether some disk sector that begins inside topic or properties holds nothing of the record but zeros.

    Sectors that begin before them show in the checksum or in lengths that do not add up.
    """
    end = position + record.size
    # Without properties the last two bytes are zeros by right.
    last = end if record.properties else end - 2
    start = end - len(record.properties) - 2 - len(record.topic.encode())
    for sector in range(-(-start // SECTOR_BYTES) * SECTOR_BYTES, last, SECTOR_BYTES):
        if view[sector] == 0 and not any(view[sector : min(sector + SECTOR_BYTES, end)]):
            return True
    return False
