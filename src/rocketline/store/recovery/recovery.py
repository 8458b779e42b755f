"""Recovery: bringing a store into a consistent state when it is opened.

After a clean stop the consume queues say where the log ends: only what lies after the last message they list is read.
After a crash nothing written since the last mark is trusted (without a progress file: since Apache's checkpoint, and then
by whole files): consume queues and key index are cut back to it, the log is read from there, and every record found is
dispatched again.

Reading ends at the first bytes that are no sound record, and the log is cut there, durably: a write that was not finished
when the power failed. But bytes that once were on disk are never cut off: a damaged record there is reported and skipped
(`durable_reader`).

Queues and index are made from the log, so damage to them loses nothing: those that lack something, or have files of
another queue, are rebuilt from the whole log.

A power failure loses some sectors and keeps others. A body is covered by its checksum; a lost sector in the rest of a
record shows as zeros.
"""

from __future__ import annotations

import logging
from zlib import crc32

from rocketline.protocol.record_layout import MAGIC_V1, MAGIC_V2
from rocketline.protocol.records import LogEntry, decode_record, log_entry, read_start
from rocketline.store.files.segment import Segment
from rocketline.store.flush.checkpoint import Checkpoint
from rocketline.store.flush.checkpoint_writer import QueueExtent
from rocketline.store.flush.progress import PROOF_BYTES, ProgressMark
from rocketline.store.log.commit_log import record_store_ms
from rocketline.store.queue.consume_queue import FILLER_SIZE, ConsumeQueue
from rocketline.store.recovery.durable_reader import DurableLogReader
from rocketline.store.recovery.report import QueueKey, RecoveryInput, RecoveryReport, shortened
from rocketline.store.recovery.scan import END_OF_LOG
from rocketline.store.store_parts import StoreParts

_CHECKPOINT_MARGIN_MS = 3000
_LOOK_BYTES = 4096

log = logging.getLogger(__name__)


class Recovery:
    """One recovery; `run` once."""

    def __init__(self, parts: StoreParts, checkpoint: Checkpoint, known: RecoveryInput) -> None:
        self._log = parts.log
        self._queues = parts.queues
        self._index = parts.index
        self._dispatcher = parts.dispatcher
        self._codes = parts.codes
        self._damage = parts.damage
        self._verify = parts.config.verify_on_start
        self._checkpoint = checkpoint
        self._known = known
        self._mark = known.mark
        self._reader = DurableLogReader(parts, checkpoint, known.parse_properties)
        self._records_scanned = 0
        self._ended_by = END_OF_LOG
        self._rebuilt: list[str] = []
        self._broken: dict[QueueKey, str] = dict.fromkeys(known.broken, "files of a wrong size")
        """Queues to rebuild, and why."""
        self._adopted: set[QueueKey] = set()

    def run(self) -> RecoveryReport:
        file, after_crash = self._log.file, self._known.after_crash
        last = file.last
        if last is None:
            if self._index is not None:
                self._index.destroy()
            return self._report(after_crash, 0, 0)
        # Until the true end is known, everything in the files may be read.
        self._log.set_end(last.next_base, 0)
        self._mark = self._proven_mark()
        if self._mark is not None:
            self._reader.durable_end = self._known.flushed
            self._reader.uses_checkpoint = False
        start = None if after_crash else self._end_of_queues()
        if start is None:
            after_crash = True
            start = self._cut_back()
        if self._drop_damaged():
            start = self._log.min_offset
        start, end = self._replay_all(start)
        files_deleted = self._end_log(start, end, after_crash)
        return self._report(after_crash, start, files_deleted)

    def _replay_all(self, start: int) -> tuple[int, int]:
        """Dispatch the records from `start` on, or all of them if queues lack earlier ones; returns where it began and
        ended."""
        end = self._replay(start)
        if start > self._log.min_offset and (lacking := self._lacking_queues()):
            # Units from before `start` are missing: only the whole log brings them back.
            self._rebuild(lacking)
            start = self._log.min_offset
            end = self._replay(start)
        return start, end

    def _end_log(self, start: int, end: int, after_crash: bool) -> int:
        """Cut the log at its end and let all parts go on from there; returns how many files were deleted."""
        file = self._log.file
        # Queues are cut after the log. Should a crash come between, a log without files would look like one that is missing.
        erase = after_crash or not self._zeros_follow(end)
        files_deleted = file.truncate(end, erase=erase, keep_first=True)
        if after_crash:
            file.flushed = min(start, end)
            file.flush(end)
        file.flushed = end
        self._log.set_end(end, self._reader.last_store_ms)
        self._settle_queues()
        if self._index is not None:
            self._index.note_log_end(end)
        self._dispatcher.dispatched = end
        return files_deleted

    def _proven_mark(self) -> ProgressMark | None:
        """The mark, if the last record it covers is still where it was."""
        mark = self._mark
        if mark is None:
            return None
        offset, size, crc = mark.last_record
        if not size:
            return mark if mark.safe == self._log.min_offset else None
        if offset < self._log.min_offset:
            return None
        found = self._log.file.slice(offset, offset + size)
        if found is not None and crc32(found[:PROOF_BYTES]) == crc:
            return mark
        log.warning("the progress file belongs to another log: the log is read from the checkpoint on")
        return None

    def _end_of_queues(self) -> int | None:
        """After a clean stop: end of the last record that any queue lists; None when the log has no such record."""
        newest: tuple[int, int] | None = None
        for key, queue in self._queues.by_key.items():
            if self._has_adopted(key, queue):
                continue
            if not queue.find_end():
                log.warning("consume queue %s/%d has a hole", *key)
                return None
            unit = queue.unit(queue.max_offset - 1)
            if unit is not None and unit[1] != FILLER_SIZE and (newest is None or unit[:2] > newest):
                newest = unit[:2]
        if self._mark is not None and self._mark.closed and self._mark.last_record[1]:
            # Also covers records that no queue lists, and the last ones of a queue that is gone.
            newest = self._mark.last_record[:2]
        if newest is None or newest[0] < self._log.min_offset:
            return self._log.min_offset
        record = self._log.record_at(newest[0])
        if record is None or len(record) != newest[1]:
            log.warning(
                "a queue lists a record at %d that the log does not have: recovering as after a crash", newest[0]
            )
            return None
        entry = self._dispatcher.last = self._entry_at(newest[0])
        self._reader.last_store_ms = entry.store_ms if entry is not None else 0
        return sum(newest)

    def _has_adopted(self, key: QueueKey, queue: ConsumeQueue) -> bool:
        """Take a queue as the table of queue lengths says, or note that it differs; False if the table does not say."""
        extent = self._known.extents.get(key) if self._known.are_exact and self._mark is not None else None
        if extent is None:
            return False
        if queue.first_unit <= extent.first_unit and queue.adopt(self._log, extent.min_offset, extent.max_offset):
            self._adopted.add(key)
        else:
            self._broken[key] = "not as it was left"
        return True

    def _entry_at(self, log_offset: int) -> LogEntry | None:
        record = self._log.record_at(log_offset)
        return log_entry(decode_record(record, 0, len(record))) if record is not None else None

    def _cut_back(self) -> int:
        """After a crash: drop from queues and index what may be incomplete; returns where the log must be read from."""
        mark = self._mark
        if mark is None:
            start = self._cut_back_to_checkpoint()
            for queue in self._queues:
                queue.find_end_below(self._log, start)
            return start
        if self._index is not None:
            self._index.keep_marked(mark.index)
        self._reader.last_store_ms = max(mark.times)
        self._dispatcher.last = self._entry_at(mark.last_record[0]) if mark.last_record[1] else None
        for queue in self._queues:
            queue.find_marked_end(self._log, mark.safe)
        return mark.safe

    def _cut_back_to_checkpoint(self) -> int:
        index = self._index
        safe_ms = self._checkpoint.safe_ms(with_index=index is not None)
        start = self._start_file(safe_ms - _CHECKPOINT_MARGIN_MS).base
        if index is not None:
            missing_from = index.recover_from_crash(self._checkpoint.index_ms)
            if missing_from is not None and missing_from < start:
                # Reading must begin at a record: anything else would look like the end of the log.
                start = missing_from if self._log.record_at(missing_from) else self._log.min_offset
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

    def _drop_damaged(self) -> bool:
        """Delete queues and index that lack something, so that they are rebuilt; whether there were any."""
        queues, index = self._queues, self._index
        broken = self._broken
        extents = self._extents
        for key, queue in queues.by_key.items():
            if key in self._adopted or key in broken:
                continue
            extent = extents.get(key)
            if extent is not None and queue.max_offset and queue.first_unit > extent.first_unit:
                broken[key] = f"nothing before message {queue.first_unit}"
            elif not queue.looks_whole(self._log):
                broken[key] = "a file is missing or belongs to another queue"
        if self._verify:
            broken |= dict.fromkeys(self._differing_queues(broken), "differs from the log")
        self._rebuild(broken)
        shape = self._mark.index if self._mark is not None else None
        if index is not None and (self._known.index_broken or self._verify or index.lacks(shape, self._log.min_offset)):
            log.warning("rebuilding the key index from the log")
            index.destroy()
            self._rebuilt.append("index")
        return bool(self._rebuilt)

    @property
    def _extents(self) -> dict[QueueKey, QueueExtent]:
        return self._known.extents if self._mark is not None else {}

    def _lacking_queues(self) -> dict[QueueKey, str]:
        """Queues that have less than they once had, after the end of the log was read, and what they lack."""
        lacking = dict.fromkeys(self._dispatcher.gaps, "a gap before the newest messages")
        for key, extent in self._extents.items():
            queue = self._queues.by_key.get(key)
            found = queue.max_offset if queue is not None else 0
            if found < extent.max_offset:
                lacking[key] = f"{found} messages instead of {extent.max_offset}"
            elif queue is not None and queue.min_offset > extent.min_offset:
                lacking[key] = f"nothing before message {queue.min_offset}"
        return lacking

    def _rebuild(self, broken: dict[QueueKey, str]) -> None:
        if broken:
            reasons = [f"{topic}/{queue_id} ({why})" for (topic, queue_id), why in sorted(broken.items())]
            log.warning("rebuilding consume queues from the log: %s", shortened(reasons))
        for topic, queue_id in sorted(broken):
            self._queues.delete_queue(topic, queue_id)
            self._rebuilt.append(f"{topic}/{queue_id}")

    def _differing_queues(self, broken: dict[QueueKey, str]) -> set[QueueKey]:
        """Queues with a unit that differs from its record; reads the whole log."""
        differing: set[QueueKey] = set()
        for batch in self._reader.batches(self._reader.scan(self._log.min_offset)):
            for entry in map(LogEntry._make, batch):
                key = (entry.topic, entry.queue_id)
                queue = self._queues.by_key.get(key)
                if queue is None or key in broken or key in differing or entry.queue_offset >= queue.max_offset:
                    continue
                if not self._codes.is_listed(queue, entry):
                    differing.add(key)
        return differing

    def _replay(self, start: int) -> int:
        """Dispatch every sound record from `start` on; returns where they end."""
        reader = self._reader
        scan = reader.scan(start)
        for batch in reader.batches(scan):
            self._records_scanned += len(batch)
            reader.last_store_ms = max(reader.last_store_ms, batch[-1][6])
            self._dispatcher.replay(batch)
        assert scan.stop is not None
        self._ended_by = scan.stop.reason
        return scan.next_log_offset

    def _zeros_follow(self, offset: int) -> bool:
        """Whether nothing follows the last record, as after a clean stop; the next bytes are proof enough."""
        segment = self._log.file.segment_at(offset)
        if segment is None:
            return True
        position = offset - segment.base
        return not any(segment.open()[position : position + _LOOK_BYTES])

    def _settle_queues(self) -> None:
        """Find where each queue begins, now that the log is known, and set the number of its next message."""
        for key, queue in self._queues.by_key.items():
            if key not in self._adopted:
                queue.follow_log_minimum(self._log.min_offset)
                queue.unmap()
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
            rebuilt=tuple(self._rebuilt),
            damaged_records=self._damage.records,
        )
