"""The dispatcher follows the commit log and keeps consume queues and key index in step with it.

Appends hand over what the indexes need (`LogEntry`), so nothing is parsed twice; at start, recovery reads the same entries
back from the log. A record is dispatched once it counts as stored: at once, with a transient pool when it is committed,
under SYNC_FLUSH when it is on disk. Being stopped half way is harmless, because queues and index skip what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocketline._impl import NAME
from rocketline.protocol.records import NOT_QUEUED, TRANSACTION_MASK, TRANSACTION_ROLLBACK, LogEntry
from rocketline.store.bulk import by_queue, put_in_each, put_in_index, put_in_queues
from rocketline.store.commit_log import CommitLog
from rocketline.store.consume_queue import ConsumeQueue, ConsumeQueues
from rocketline.store.key_index import KeyIndex
from rocketline.store.record_runs import Row

TagsCodeFor = Callable[[LogEntry], int]
OnArrivals = Callable[[list[LogEntry]], None]

FEW = 2
_IN_BULK = NAME == "c"
"""With the compiled twin more than a few records are filed sooner together; in Python one by one, unless it is thousands."""


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
        self.last: LogEntry | None = None
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
        ready = self._take()
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
                self.on_arrivals(ready)
        return done

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

    def _take(self) -> list[LogEntry]:
        commit_log = self._log
        entries = commit_log.entries
        if not self._waits_for_flush and commit_log.staging is None:
            ready = list(entries)
            entries.clear()
            return ready
        ready = []
        confirmed = commit_log.flushed if self._waits_for_flush else commit_log.readable
        while entries and entries[0].log_offset + entries[0].size <= confirmed:
            ready.append(entries.popleft())
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
