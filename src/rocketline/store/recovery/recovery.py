"""Making a store whole again when it is opened.

After a clean stop the consume queues say where the log ends: only what lies after the last message they list is read.
After a crash nothing written since the last mark is trusted (without a progress file: since Apache's checkpoint, and then
by whole files): consume queues and key index are cut back to it, the log is read from there, and every record found is
dispatched again.

Reading ends at the first bytes that are no sound record, and the log is cut there, durably: a write that was not finished
when the power failed. But bytes that once were on disk are never cut off: a record damaged there is reported and stepped
over.

Queues and index are made from the log, so whatever is wrong with them is no loss: those that lack something, or have
files that are not theirs, are built anew from the whole log.

A power failure loses some sectors and keeps others. A body is covered by its checksum; a lost sector in the rest of a
record is seen by its zeros.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from rocketline.errors import CorruptRecord, StoreError
from rocketline.protocol.record_layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from rocketline.protocol.records import LogEntry, decode_record, log_entry, read_start
from rocketline.store.files.segment import Segment
from rocketline.store.flush.checkpoint import Checkpoint
from rocketline.store.flush.checkpoint_writer import Extent
from rocketline.store.flush.progress import PROOF_BYTES, Mark
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.log.commit_log import CommitLog, record_store_ms
from rocketline.store.queue.consume_queue import FILLER_SIZE
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.queue.dispatcher import Dispatcher
from rocketline.store.queue.tags_codes import TagsCodes
from rocketline.store.reading.damage import Damage
from rocketline.store.recovery.record_runs import ParseProperties, Row
from rocketline.store.recovery.scan import END_OF_LOG, LogScan, sound_record

_CHECKPOINT_MARGIN_MS = 3000
_LOOK_BYTES = 4096

QueueKey = tuple[str, int]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Known:
    """What is known about a store before it is looked at."""

    after_crash: bool
    check_crc: bool
    parse_properties: ParseProperties | None = None
    """How to read properties when queues and index need others than their own."""
    verify: bool = False
    """Whether every queue shall be compared with the whole log."""
    mark: Mark | None = None
    flushed: int = 0
    """The log below this was on disk once; 0: not known."""
    extents: dict[QueueKey, Extent] = field(default_factory=dict)
    """What each queue must have at least."""
    are_exact: bool = False
    """Whether the queues have exactly that."""
    broken: frozenset[QueueKey] = frozenset()
    """Queues whose files could not be taken up."""
    index_broken: bool = False


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
    rebuilt: tuple[str, ...] = ()
    """Queues, as TOPIC/NUMBER, and "index" when they were built anew."""
    damaged_records: int = 0

    def __str__(self) -> str:
        parts = [
            f"store opened after {'a crash' if self.after_crash else 'a clean stop'}: log {self.log_min_offset} to "
            f"{self.log_next_offset}, {self.queue_count} queues",
            f"{self.records_scanned} records read from {self.scanned_from} to {self.ended_by}",
        ]
        if self.files_deleted:
            parts.append(f"{self.files_deleted} log files after the end removed")
        if self.rebuilt:
            parts.append(f"built anew: {_some(self.rebuilt)}")
        if self.damaged_records:
            parts.append(f"{self.damaged_records} damaged records passed over")
        return "; ".join(parts)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"{', '.join(names[:10])}{more}"


class Recovery:
    """One recovery; `run` once."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        codes: TagsCodes,
        known: Known,
        damage: Damage,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._codes = codes
        self._known = known
        self._damage = damage
        self._mark = known.mark
        self._durable_end = 0
        self._records_scanned = 0
        self._last_store_ms = 0
        self._ended_by = END_OF_LOG
        self._rebuilt: list[str] = []
        self._broken: dict[QueueKey, str] = dict.fromkeys(known.broken, "files of a wrong size")
        """Queues to build anew, and why."""
        self._adopted: set[QueueKey] = set()

    def run(self) -> RecoveryReport:
        file, after_crash = self._log.file, self._known.after_crash
        last = file.last
        if last is None:
            if self._index is not None:
                self._index.destroy()
            return self._report(after_crash, 0, 0)
        # Until the true end is known, everything in the files may be looked at.
        self._log.set_end(last.next_base, 0)
        self._mark = self._proven_mark()
        if self._mark is not None:
            self._durable_end = self._known.flushed
        start = None if after_crash else self._end_of_queues()
        if start is None:
            after_crash = True
            start = self._cut_back()
        if self._drop_damaged():
            start = self._log.min_offset
        end = self._replay(start)
        if start > self._log.min_offset and (lacking := self._lacking_queues()):
            # Units before the place where reading began are missing: nothing less than the whole log brings them back.
            self._rebuild(lacking)
            start = self._log.min_offset
            end = self._replay(start)
        files_deleted = file.truncate(end, erase=after_crash or not self._zeros_follow(end))
        if after_crash:
            file.flushed = min(start, end)
            file.flush(end)
        file.flushed = end
        self._log.set_end(end, self._last_store_ms)
        self._settle_queues()
        if self._index is not None:
            self._index.note_log_end(end)
        self._dispatcher.dispatched = end
        return self._report(after_crash, start, files_deleted)

    def _proven_mark(self) -> Mark | None:
        """The mark, when the last record it speaks of is still where it was."""
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
        log.warning("the log is not the one the progress file speaks of; it is read from the checkpoint on")
        return None

    def _end_of_queues(self) -> int | None:
        """After a clean stop: end of the last record any queue lists; None when that is no record of the log."""
        newest: tuple[int, int] | None = None
        adopting = self._known.are_exact and self._mark is not None
        for key, queue in self._queues.by_key.items():
            if adopting and (extent := self._known.extents.get(key)) is not None:
                if queue.first_unit <= extent.first_unit and queue.adopt(
                    self._log, extent.min_offset, extent.max_offset
                ):
                    self._adopted.add(key)
                else:
                    self._broken[key] = "not as it was left"
                continue
            if not queue.find_end():
                log.warning("consume queue %s/%d has a hole", *key)
                return None
            unit = queue.unit(queue.max_offset - 1)
            if unit is not None and unit[1] != FILLER_SIZE and (newest is None or unit[:2] > newest):
                newest = unit[:2]
        if self._mark is not None and self._mark.closed and self._mark.last_record[1]:
            # Also right for records no queue lists, and when the last ones are in a queue that is gone.
            newest = self._mark.last_record[:2]
        if newest is None or newest[0] < self._log.min_offset:
            return self._log.min_offset
        record = self._log.record_at(newest[0])
        if record is None or len(record) != newest[1]:
            log.warning("the log has no record at %d, as a queue says: recovering as after a crash", newest[0])
            return None
        entry = self._dispatcher.last = self._entry_at(newest[0])
        self._last_store_ms = entry.store_ms if entry is not None else 0
        return sum(newest)

    def _entry_at(self, log_offset: int) -> LogEntry | None:
        record = self._log.record_at(log_offset)
        return log_entry(decode_record(record, 0, len(record))) if record is not None else None

    def _cut_back(self) -> int:
        """After a crash: drop from queues and index what may be torn; returns where the log must be read from."""
        index, mark = self._index, self._mark
        if mark is not None:
            start = mark.safe
            if index is not None:
                index.keep_marked(mark.index)
            self._last_store_ms = max(mark.times)
            self._dispatcher.last = self._entry_at(mark.last_record[0]) if mark.last_record[1] else None
        else:
            safe_ms = self._checkpoint.safe_ms(with_index=index is not None)
            start = self._start_file(safe_ms - _CHECKPOINT_MARGIN_MS).base
            if index is not None:
                missing_from = index.recover_from_crash(self._checkpoint.index_ms)
                if missing_from is not None and missing_from < start:
                    # Reading must begin at a record: anything else would look like the end of the log.
                    start = missing_from if self._log.record_at(missing_from) else self._log.min_offset
        for queue in self._queues:
            if mark is not None:
                queue.find_marked_end(self._log, start)
            else:
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

    def _drop_damaged(self) -> bool:
        """Delete queues and index that lack something, so that they are built anew; whether there were any."""
        known, queues, index = self._known, self._queues, self._index
        broken = self._broken
        extents = self._extents
        for key, queue in queues.by_key.items():
            if key in self._adopted or key in broken:
                continue
            extent = extents.get(key)
            if extent is not None and queue.max_offset and queue.first_unit > extent.first_unit:
                broken[key] = f"nothing before message {queue.first_unit}"
            elif not queue.looks_whole(self._log):
                broken[key] = "a file is missing or another queue's"
        if known.verify:
            broken |= dict.fromkeys(self._differing_queues(broken), "not what the log says")
        self._rebuild(broken)
        shape = self._mark.index if self._mark is not None else None
        if index is not None and (known.index_broken or known.verify or index.lacks(shape, self._log.min_offset)):
            log.warning("building the key index anew from the log")
            index.destroy()
            self._rebuilt.append("index")
        return bool(self._rebuilt)

    @property
    def _extents(self) -> dict[QueueKey, Extent]:
        return self._known.extents if self._mark is not None else {}

    def _lacking_queues(self) -> dict[QueueKey, str]:
        """Queues that have less than they once had, now that the end of the log was read; and why that is so."""
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
            told = [f"{topic}/{queue_id} ({why})" for (topic, queue_id), why in sorted(broken.items())]
            log.warning("building consume queues anew from the log: %s", _some(told))
        for topic, queue_id in sorted(broken):
            self._queues.delete_queue(topic, queue_id)
            self._rebuilt.append(f"{topic}/{queue_id}")

    def _differing_queues(self, broken: dict[QueueKey, str]) -> set[QueueKey]:
        """Queues with a unit that is not the one its record asks for, by reading the whole log."""
        differing: set[QueueKey] = set()
        for batch in self._batches(self._scan(self._log.min_offset)):
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
        scan = self._scan(start)
        for batch in self._batches(scan):
            self._records_scanned += len(batch)
            self._last_store_ms = max(self._last_store_ms, batch[-1][6])
            self._dispatcher.replay(batch)
        assert scan.stop is not None
        self._ended_by = scan.stop.reason
        return scan.next_log_offset

    def _scan(self, start: int) -> LogScan:
        known = self._known
        return LogScan(self._log.file, start, check_crc=known.check_crc, parse_properties=known.parse_properties)

    def _batches(self, scan: LogScan) -> Iterator[list[Row]]:
        """Everything up to the end of the log, whatever is damaged on the way."""
        while True:
            yield from scan.rows()
            damaged = self._rotted(scan)
            if damaged is not None:
                yield [damaged]
            elif not self._step_over(scan):
                return

    def _rotted(self, scan: LogScan) -> LogEntry | None:
        """The record at which reading stopped, when only its body is damaged and it once was on disk.

        It keeps its place in its queue, and is not served.
        """
        offset = scan.next_log_offset
        segment = self._log.file.segment_at(offset)
        if segment is None or offset >= self._durable_end:
            return None
        try:
            record = sound_record(segment, offset - segment.base, segment.size, check_crc=False)
        except CorruptRecord:
            return None
        self._damage.record_at(offset, "its body does not match its checksum")
        scan.next_log_offset = offset + record.size
        return log_entry(record)

    def _step_over(self, scan: LogScan) -> bool:
        """Go on behind bytes that were a record on disk once; False when they never were, and the log ends here."""
        offset = scan.next_log_offset
        assert scan.stop is not None
        if offset < self._durable_end:
            self._damage.record_at(offset, scan.stop.reason)
            if scan.skip() is None:
                scan.next_log_offset = self._durable_end
            return True
        if self._mark is not None or self._last_store_ms >= self._checkpoint.log_ms:
            return False
        # The checkpoint knows of later records on disk.
        reason = scan.stop.reason
        following = scan.find_record(offset + 1)
        segment = self._log.file.segment_at(following) if following is not None else None
        if following is None or segment is None:
            return False
        if record_store_ms(segment.open(), following - segment.base) >= self._checkpoint.log_ms:
            return False
        self._damage.record_at(offset, reason)
        scan.next_log_offset = following
        return True

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


def refuse_unknown(commit_log: CommitLog, queues: ConsumeQueues) -> None:
    """StoreError, with nothing changed, for a folder that is not ours to work on."""
    first = commit_log.file.first
    if first is None:
        if any(len(queue.file) for queue in queues):
            # Starting afresh would bury a log whose disk is not mounted.
            raise StoreError(
                f"{commit_log.file.folder} has no log files, but there are consume queues beside it: bring the log back "
                "(is its disk mounted?), or remove the consumequeue and index folders to start empty"
            )
        return
    _refuse_shuffled(commit_log)
    size, magic = read_start(first.open(), 0)
    if magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK) or (size, magic) == (0, 0):
        return
    if LogScan(commit_log.file, first.base).find_record(first.base) is None:
        raise StoreError(
            f"{first.path} does not begin with a message (magic {magic & 0xFFFFFFFF:#010x}): it is no commit log, or one of "
            "a version this program does not know; nothing was changed"
        )


def _refuse_shuffled(commit_log: CommitLog) -> None:
    """A file that begins with a whole record of another place has that place's name wrong: cutting there would lose it."""
    for segment in commit_log.file:
        try:
            record = decode_record(segment.open(), 0, segment.size, check_crc=True)
        except CorruptRecord:
            continue
        if record.log_offset != segment.base:
            raise StoreError(
                f"{segment.path} begins with the message of log offset {record.log_offset}: the files of "
                f"{commit_log.file.folder} have changed places; give them back their names, nothing was changed"
            )
