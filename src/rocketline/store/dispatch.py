"""The dispatcher follows the commit log and keeps consume queues and key index in step with it.

Appends hand over what the indexes need (`LogEntry`), so nothing is parsed twice; at start, recovery reads the same entries
back from the log. Where the compiled twin appended plain messages it hands over where they lie (`Stretch`), and files them
from there: making no object of a message is cheaper than reading it twice. A record is dispatched once it counts as stored:
at once, with a transient pool when it is committed, under SYNC_FLUSH when it is on disk. Being stopped half way is harmless,
because queues and index skip what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rocketline._impl import NAME, quick
from rocketline.protocol.records import NOT_QUEUED, TRANSACTION_MASK, TRANSACTION_ROLLBACK, LogEntry
from rocketline.store.bulk import by_queue, put_in_each, put_in_index, put_in_queues
from rocketline.store.commit_log import CommitLog
from rocketline.store.consume_queue import ConsumeQueue
from rocketline.store.key_index import KeyIndex
from rocketline.store.queues import ConsumeQueues
from rocketline.store.record_runs import Row
from rocketline.store.stretch import Stretch

TagsCodeFor = Callable[[LogEntry], int]
Units = tuple[str, int, int, int, bytes, int]
"""Of a queue: topic, queue id, number and log offset of the first, packed units, where the last record ends."""

_stretch_units: Callable[[memoryview, int, int, int], tuple[list[Units], int, int, int, int] | None] | None = quick(
    "stretch_units"
)

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
        self._waits_for_flush = waits_for_flush

    def dispatch(self) -> int:
        """Handle what has been appended and confirmed; returns how many records. A StoreError leaves the rest for later."""
        items = self._take()
        if not items:
            return 0
        try:
            done = self._file(items[0]) if len(items) == 1 and isinstance(items[0], Stretch) else 0
            ready = entries_of(self._log, items) if not done else []
        except BaseException:
            self._log.entries.extendleft(reversed(items))
            raise
        if not done:
            return self._handle_all(ready)
        if self.on_arrivals is not None:
            self.on_arrivals(Arrivals(self._log, items))
        return done

    def _handle_all(self, ready: list[LogEntry]) -> int:
        done = 0
        handle = self._handle
        try:
            if _IN_BULK and len(ready) > FEW:
                done = self._handle_together(ready)
            for entry in ready[done:]:
                handle(entry)
                done += 1
        finally:
            if done:
                self._note(ready[done - 1])
            if done < len(ready):
                self._log.entries.extendleft(reversed(ready[done:]))
                del ready[done:]
            if ready and self.on_arrivals is not None:
                self.on_arrivals(Arrivals(self._log, list(ready)))
        return done

    def _file(self, stretch: Stretch) -> int:
        """List and index a stretch as it lies in the log; 0 when that is not possible, or not to the end of it.

        Nothing here asks the disk for anything. What was listed before it turned out that more is needed does no harm.
        """
        if _stretch_units is None or not self._may_file(stretch):
            return 0
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
        code_for = self._tags_code_for
        return code_for is None or getattr(code_for, "only_topic", None) not in {None, *stretch.topics}

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
