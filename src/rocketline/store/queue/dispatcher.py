"""The dispatcher follows the commit log and keeps consume queues and key index in step with it.

Appends hand over what the indexes need (`LogEntry`), so nothing is parsed twice; at start, recovery reads the same entries
back from the log. Of plain messages that were taken together, where they lie is handed over (`Stretch`): the compiled twin
files them from there, for making no object of a message is cheaper than reading it twice, and Python has noted what to file.
A record is dispatched once it counts as stored: at once, with a transient pool when it is committed, under SYNC_FLUSH when
it is on disk. Being stopped half way is harmless, because queues and index skip what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rocketline._impl import NAME, quick
from rocketline.protocol.records import NOT_QUEUED, TRANSACTION_MASK, TRANSACTION_ROLLBACK, LogEntry
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.log.appended_range import Filing, QueueShare, Stretch
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.queue.batch_dispatch import by_queue, put_in_each, put_in_index, put_in_queues
from rocketline.store.queue.consume_queue import UNIT, ConsumeQueue, run_of_units
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.recovery.record_runs import Row

TagsCodeFor = Callable[[LogEntry], int]
Units = tuple[str, int, int, int, bytes, int]
"""Of a queue: topic, queue id, number and log offset of the first, packed units, where the last record ends."""

_stretch_units: Callable[[memoryview, int, int, int], tuple[list[Units], int, int, int, int] | None] | None = quick(
    "stretch_units"
)

_pack_unit = UNIT.pack
_new_tuple = tuple.__new__
FEW = 2
_IN_BULK = NAME == "c"
"""With the compiled twin more than a few records are filed sooner together; in Python one by one, unless it is thousands."""


class Dispatched(NamedTuple):
    """As much of a record as is needed to say how far the dispatcher came."""

    log_offset: int
    size: int
    store_ms: int


class Arrivals:
    """Messages that have just become readable, in the order of the log; those in a stretch are read when somebody looks."""

    __slots__ = ("_entries", "_items", "_log")

    def __init__(self, log: CommitLog, items: list[LogEntry | Stretch]) -> None:
        self._log = log
        self._items = items
        self._entries: list[LogEntry] | None = None

    @property
    def topics(self) -> set[str]:
        """Of which topics they are."""
        first = self._items[0]
        if len(self._items) == 1 and isinstance(first, Stretch):
            return first.topics
        topics: set[str] = set()
        for item in self._items:
            if isinstance(item, Stretch):
                topics |= item.topics
            else:
                topics.add(item.topic)
        return topics

    def __iter__(self) -> Iterator[LogEntry]:
        if self._entries is None:
            self._entries = entries_of(self._log, self._items)
        return iter(self._entries)


OnArrivals = Callable[[Arrivals], None]


def entries_of(log: CommitLog, items: Sequence[LogEntry | Stretch]) -> list[LogEntry]:
    """One entry for each record."""
    entries: list[LogEntry] = []
    for item in items:
        if isinstance(item, Stretch):
            entries += log.entries_of(item)
        else:
            entries.append(item)
    return entries


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
        self.dispatched = 0
        """Everything below this log offset is in queues and index."""
        self.last: LogEntry | Dispatched | None = None
        """The last record dispatched; replaced as a whole, so that other threads may look at it."""
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
        items = self._take()
        if not items:
            return 0
        handled: list[LogEntry | Stretch] = []
        in_stretches = 0
        try:
            while (place := len(handled)) < len(items):
                item = items[place]
                if not isinstance(item, Stretch):
                    self._handle_all(_entries_from(items, place), handled)
                elif count := self._file(item):
                    handled.append(item)
                    in_stretches += count - 1
                else:
                    items[place : place + 1] = self._log.entries_of(item)
        finally:
            self._log.entries.extendleft(reversed(items[len(handled) :]))
            if handled:
                self._tell(handled)
        return len(handled) + in_stretches

    def _handle_all(self, ready: list[LogEntry], handled: list[LogEntry | Stretch]) -> None:
        """Handle entries one after the other; those that are done are added to `handled`."""
        done = self._handle_together(ready) if _IN_BULK and len(ready) > FEW else 0
        handled += ready[:done]
        for entry in ready[done:]:
            self._handle(entry)
            handled.append(entry)

    def _tell(self, handled: list[LogEntry | Stretch]) -> None:
        last = handled[-1]
        if not isinstance(last, Stretch):
            self._note(last)
        if self.on_arrivals is not None:
            self.on_arrivals(Arrivals(self._log, handled))

    def _file(self, stretch: Stretch) -> int:
        """List and index a stretch without looking at each record with care; 0 when that is not possible, or not to its end.

        What was listed before it turned out that more is needed does no harm.
        """
        if not self._may_file(stretch):
            return 0
        if stretch.filing is not None:
            return self._file_noted(stretch, stretch.filing)
        return 0 if _stretch_units is None else self._file_as_it_lies(stretch)

    def _file_noted(self, stretch: Stretch, filing: Filing) -> int:
        queues = self._queues.by_key
        count = 0
        for key, share in filing.shares.items():
            queue: ConsumeQueue | None = queues.get(key)
            if queue is None:
                queue = self._queues.obtain(*key)
            _list_share(queue, share)
            count += share.number - share.start
        last = stretch.end - filing.last_bytes
        if self._index is not None:
            self._index.put_noted(filing.key_starts, filing.key_ends, filing.owners, filing.store_ms, last)
        self.last = _new_tuple(Dispatched, (last, filing.last_bytes, filing.store_ms))
        self.dispatched = stretch.end
        return count

    def _file_as_it_lies(self, stretch: Stretch) -> int:
        """The compiled twin's, straight from the log. Nothing here asks the disk for anything."""
        assert _stretch_units is not None
        view, base = self._log.memory_of(stretch)
        found = _stretch_units(view, base, stretch.start, stretch.end)
        if found is None:
            return 0
        rows, count, *last = found
        queues = self._queues.by_key
        for topic, queue_id, number, log_offset, units, end in rows:
            queue: ConsumeQueue | None = queues.get((topic, queue_id))
            if queue is None or not queue.put_next(number, log_offset, units, end):
                return 0
        if self._index is not None and not self._index.put_stretch(view, base, stretch.start, stretch.end):
            return 0
        self.last = Dispatched(*last)
        self.dispatched = stretch.end
        return count

    def _may_file(self, stretch: Stretch) -> bool:
        """Whether units of these messages hold what their tags say, and nothing else."""
        if self._tags_code_for is None:
            return True
        return self._only_topic is not None and self._only_topic not in stretch.topics

    def _handle_together(self, ready: list[LogEntry]) -> int:
        """How many of the first were handled in one go: those for which the disk need not be asked, so that none fails."""
        if self._tags_code_for is not None and not hasattr(self._tags_code_for, "only_topic"):
            return 0
        rows: list[Row] = list(ready)
        found: list[tuple[ConsumeQueue, list[Row]]] = []
        for key, group in by_queue(rows).items():
            queue = self._queues.by_key.get(key)
            if queue is None or not queue.has_room(group):
                return 0
            found.append((queue, group))
        done = len(rows) if self._index is None else self._index.put_at_once(rows)
        if done < len(rows):
            put_in_queues(self._queues, rows[:done], self._tags_code_for)
        else:
            put_in_each(found, self._tags_code_for)
        return done

    def _take(self) -> list[LogEntry | Stretch]:
        commit_log = self._log
        entries = commit_log.entries
        if not self._waits_for_flush and commit_log.staging is None:
            ready = list(entries)
            entries.clear()
            return ready
        ready = []
        confirmed = commit_log.flushed if self._waits_for_flush else commit_log.readable
        while entries and _end_of(entries[0]) <= confirmed:
            ready.append(entries.popleft())
        first = entries[0] if entries else None
        if isinstance(first, Stretch) and first.start < confirmed:
            # It may have grown since the flush began, which ended where a record ends.
            ready.append(Stretch(first.start, confirmed, first.topics))
            entries[0] = Stretch(confirmed, first.end, first.topics)
        return ready

    def replay(self, rows: Sequence[Row]) -> None:
        """Handle what was read back from the log at start: nobody is told, and a name no folder can have is passed over."""
        self.gaps |= put_in_queues(self._queues, rows, self._tags_code_for)
        if self._index is not None:
            put_in_index(self._index, rows)
        if rows:
            self._note(LogEntry._make(rows[-1]))

    def _note(self, entry: LogEntry) -> None:
        self.last = entry
        self.dispatched = entry.log_offset + entry.size

    def _handle(self, entry: LogEntry) -> None:
        log_offset, size, topic, queue_id, queue_offset, tags_code, store_ms, sys_flag, properties = entry
        if not sys_flag & NOT_QUEUED:
            queue: ConsumeQueue | None = self._queues.by_key.get((topic, queue_id))
            if queue is None:
                queue = self._queues.obtain(topic, queue_id)
            if self._tags_code_for is not None:
                tags_code = self._tags_code_for(entry)
            queue.put(queue_offset, log_offset, size, tags_code)
        if self._index is not None and sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            self._index.put(topic, log_offset, store_ms, properties)


def _end_of(item: LogEntry | Stretch) -> int:
    return item.end if isinstance(item, Stretch) else item.log_offset + item.size


def _list_share(queue: ConsumeQueue, share: QueueShare) -> None:
    runs = share.runs
    if share.number - share.start > 1:
        log_offset, size, _, _, _, parts, _ = runs[-1]
        if queue.put_next(share.start, runs[0][0], _units_of(share), log_offset + size * len(parts)):
            return
    number = share.start
    for log_offset, size, code, _, _, parts, _ in runs:
        for place in range(len(parts)):
            queue.put(number + place, log_offset + place * size, size, code)
        number += len(parts)


def _units_of(share: QueueShare) -> bytes:
    if len(share.runs) == share.number - share.start:
        log_offsets, sizes, codes, *_ = zip(*share.runs)
        return b"".join(map(_pack_unit, log_offsets, sizes, codes))
    return b"".join([run_of_units(run[0], run[1], run[2], len(run[5])) for run in share.runs])


def _entries_from(items: Sequence[LogEntry | Stretch], place: int) -> list[LogEntry]:
    """The entries before the next stretch."""
    entries: list[LogEntry] = []
    for item in items[place:]:
        if isinstance(item, Stretch):
            break
        entries.append(item)
    return entries
