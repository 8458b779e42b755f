"""The dispatcher follows the commit log and keeps consume queues and key index in step with it.

Appends hand over what the indexes need (`AppendedRange`): entries, or only where records lie. The latter are dispatched
straight from the log by compiled code, without an object for each message; what that cannot do is read back into entries. At
start, recovery reads entries back from the log too. A record is dispatched once it counts as stored: at once, with a
transient pool when it is committed, under SYNC_FLUSH when it is on disk. Being stopped half way is harmless, because queues
and index skip what they have.

Whatever is wrong with one record, the others become readable: its range is then filed record by record. The one that fails
is still in its queue if anything says where, so that no number is missing there, but nobody finds it by key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rocketline._impl import compiled
from rocketline.errors import CorruptRecord, StoreError
from rocketline.message import LogOffset
from rocketline.protocol.record_layout import MIN_RECORD_BYTES
from rocketline.protocol.records import LogEntry, decode_record, log_entry, read_start
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.log.appended_range import AppendedRange
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.queue.batch_dispatch import put_in_index, put_in_queues
from rocketline.store.queue.consume_queue import QueueRun
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.recovery.record_runs import Row

log = logging.getLogger(__name__)

TagsCodeFor = Callable[[LogEntry], int]


class Dispatched(NamedTuple):
    """As much of a record as is needed to say how far the dispatcher came."""

    log_offset: int
    size: int
    store_ms: int


RangeRuns = tuple[list[tuple[str, int, QueueRun]], int, Dispatched]
"""(topic, queue id, units) of each queue, how many records, and the last of them."""


@compiled
def range_runs(
    view: memoryview, base: int, start: int, end: int, run_type: type[QueueRun], last_type: type[Dispatched]
) -> RangeRuns | None:
    """Units of the records from `start` to `end`, by queue; `view` is the file that begins at `base`. None: read them as
    entries instead, as Python always does."""
    return None


class Arrivals:
    """Messages that have just become readable, in the order of the log; their entries are read when somebody looks."""

    __slots__ = ("_entries", "_log", "_ranges")

    def __init__(self, log: CommitLog, ranges: list[AppendedRange]) -> None:
        self._log = log
        self._ranges = ranges
        self._entries: list[LogEntry] | None = None

    @property
    def topics(self) -> set[str]:
        """Of which topics they are."""
        if len(self._ranges) == 1:
            return self._ranges[0].topics
        return set().union(*(found.topics for found in self._ranges))

    def __iter__(self) -> Iterator[LogEntry]:
        if self._entries is None:
            self._entries = [entry for found in self._ranges for entry in self._log.entries_of(found)]
        return iter(self._entries)


OnArrivals = Callable[[Arrivals], None]
OnLeftOut = Callable[[int, Exception], None]
"""Is told of a record at a log offset that could not be filed, and why."""


class Dispatcher:
    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        tags_code_for: TagsCodeFor | None = None,
        waits_for_flush: bool = False,
    ) -> None:
        self.on_arrivals: OnArrivals | None = None
        self.on_left_out: OnLeftOut | None = None
        self.dispatched = 0
        """Everything below this log offset is in queues and index."""
        self.last: LogEntry | Dispatched | None = None
        """The last record dispatched; replaced as a whole, so that other threads may look at it."""
        self.limit: int | None = None
        """Nothing from this log offset on is dispatched, because replicas may not have it; None: there is no such limit."""
        self.gaps: set[tuple[str, int]] = set()
        """Queues that lacked units before the first one that `replay` put."""
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._tags_code_for = tags_code_for
        self._only_topic: str | None = getattr(tags_code_for, "only_topic", None)
        self._waits_for_flush = waits_for_flush

    def dispatch(self) -> int:
        """Handle what has been appended and confirmed; returns how many records. A StoreError leaves the rest for later."""
        ranges = self._take()
        if not ranges:
            return 0
        count = done = 0
        try:
            for found in ranges:
                count += self._dispatch_range(found)
                done += 1
        finally:
            self._log.appended.extendleft(reversed(ranges[done:]))
            if done and self.on_arrivals is not None:
                self.on_arrivals(Arrivals(self._log, ranges[:done]))
        return count

    def _dispatch_range(self, found: AppendedRange) -> int:
        """List and index the records of a range; returns how many. After a StoreError it may be done again."""
        try:
            count = self._dispatch_from_log(found) if found.entries is None else 0
            if not count:
                entries = self._log.entries_of(found)
                self._put(entries)
                count = len(entries)
                self.last = entries[-1]
        except Exception as error:
            if _may_pass(error):
                raise
            count = self._dispatch_one_by_one(found)
        self.dispatched = found.end
        return count

    def _dispatch_one_by_one(self, found: AppendedRange) -> int:
        """The same for a range with a record that cannot be filed; the others are."""
        known = {entry.log_offset: entry for entry in found.entries or ()}
        view, base = self._log.memory_of(found)
        filed: list[LogEntry] = []
        left_out: list[tuple[int, Exception]] = []
        position = found.start
        while position < found.end:
            entry = known.get(LogOffset(position))
            size = entry.size if entry is not None else read_start(view, position - base)[0]
            try:
                if entry is None:
                    entry = log_entry(decode_record(view, position - base, found.end - base))
                self._put([entry])
                filed.append(entry)
            except Exception as error:
                if _may_pass(error):
                    raise
                left_out.append((position, error))
                if entry is not None:
                    self._put_unit(entry)
            position += max(size, MIN_RECORD_BYTES)
        found.entries = filed
        if filed:
            self.last = filed[-1]
        for log_offset, reason in left_out:
            log.debug("the record at %d cannot be filed", log_offset, exc_info=reason)
            if self.on_left_out is not None:
                self.on_left_out(log_offset, reason)
        return len(filed)

    def _put_unit(self, entry: LogEntry) -> None:
        """Only in its queue, with the code of its tags; where that fails too, the next one leaves its place empty."""
        try:
            put_in_queues(self._queues, [entry])
        except Exception as error:
            if _may_pass(error):
                raise

    def _dispatch_from_log(self, found: AppendedRange) -> int:
        """The same without entries; 0 when they are needed. What was listed before that turned out does no harm."""
        if not self._holds_tags(found.topics):
            return 0
        view, base = self._log.memory_of(found)
        runs = range_runs(view, base, found.start, found.end, QueueRun, Dispatched)
        if runs is None:
            return 0
        units, count, last = runs
        for topic, queue_id, run in units:
            self._queues.obtain(topic, queue_id).put_run(run)
        if self._index is not None and not self._index.put_range(view, base, found.start, found.end):
            return 0
        self.last = last
        return count

    def _holds_tags(self, topics: set[str]) -> bool:
        """Whether units of messages of these topics hold the hashes of their tags, and nothing else."""
        if self._tags_code_for is None:
            return True
        return self._only_topic is not None and self._only_topic not in topics

    def _put(self, rows: Sequence[Row]) -> set[tuple[str, int]]:
        gaps = put_in_queues(self._queues, rows, self._tags_code_for)
        if self._index is not None:
            put_in_index(self._index, rows)
        return gaps

    def _take(self) -> list[AppendedRange]:
        """What was appended and is confirmed."""
        commit_log = self._log
        appended = commit_log.appended
        if not self._waits_for_flush and commit_log.staging is None and self.limit is None:
            ready = list(appended)
            appended.clear()
            return ready
        ready = []
        # A flush ends where a record ends.
        confirmed = commit_log.flushed if self._waits_for_flush else commit_log.readable
        if self.limit is not None:
            confirmed = min(confirmed, self.limit)
        while appended and appended[0].end <= confirmed:
            ready.append(appended.popleft())
        if appended and appended[0].start < confirmed:
            if confirmed == self.limit:
                # Replicas of Apache's acknowledge bytes.
                confirmed = commit_log.record_end(appended[0], confirmed)
            if appended[0].start < confirmed:
                ready.append(appended[0].split(confirmed))
        return ready

    def replay(self, rows: Sequence[Row]) -> None:
        """Handle what was read back from the log at start: nobody is told, and a name no folder can have is passed over."""
        self.gaps |= self._put(rows)
        if rows:
            self.last = LogEntry._make(rows[-1])
            self.dispatched = self.last.log_offset + self.last.size


def _may_pass(error: Exception) -> bool:
    """Whether a failure is the store's and not a record's: then the same is tried again."""
    return isinstance(error, StoreError) and not isinstance(error, CorruptRecord)
