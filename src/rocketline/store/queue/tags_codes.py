"""What stands in the last eight bytes of a consume-queue unit, and what a reader makes of it.

A tags code is the hash of a message's tag or, for a delayed message, its deliver time. Where extended consume queues are
kept, a unit holds the address of an extended unit instead, and that one has the code. Readers see only the code: taken
from the extended unit, or from the record itself when that one is missing or damaged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketline.errors import CorruptRecord, StoreError
from rocketline.protocol.record_layout import NOT_QUEUED
from rocketline.protocol.records import LogEntry, decode_record, log_entry
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.queue.consume_queue import ConsumeQueue
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.queue.dispatcher import TagsCodeFor
from rocketline.store.queue.ext_queue import ADDRESS_MAX

BitmapFor = Callable[[LogEntry], bytes | None]
"""The filter bitmap to keep with a message; must not raise."""
AcceptTags = Callable[[int], bool]
AcceptExt = Callable[[int, int, bytes], bool]
"""(tags code, store time, filter bitmap) of an extended unit -> whether the message may match."""

log = logging.getLogger(__name__)


class TagsCodes:
    """Owner thread only."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        tags_code_for: TagsCodeFor | None = None,
        bitmap_for: BitmapFor | None = None,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._tags_code_for = tags_code_for
        self._bitmap_for = bitmap_for
        self._is_failing = False

    @property
    def needs_all_properties(self) -> bool:
        return self._bitmap_for is not None

    def own(self, entry: LogEntry) -> int:
        """The code of a message itself."""
        return entry.tags_code if self._tags_code_for is None else self._tags_code_for(entry)

    def extended(self, entry: LogEntry) -> int:
        """Write the extended unit of a message that is about to be listed; returns its address, or the code itself."""
        code = self.own(entry)
        queue = self._queues.obtain(entry.topic, entry.queue_id)
        if queue.ext is None or entry.log_offset + entry.size <= queue.next_log_offset:
            return code
        bitmap = self._bitmap_for(entry) if self._bitmap_for is not None else None
        try:
            address = queue.ext.put(code, entry.store_ms, bitmap or b"")
        except StoreError as error:
            if not self._is_failing:
                log.warning("message at %d gets no extended unit: %s", entry.log_offset, error)
            self._is_failing = True
            return code
        self._is_failing = False
        return address

    def real(self, queue: ConsumeQueue, log_offset: int, code: int) -> int:
        """The tags code of a unit; what stands there when the message is gone and cannot tell."""
        if code > ADDRESS_MAX:
            return code
        unit = queue.ext.get(code) if queue.ext is not None else None
        if unit is not None:
            return unit.tags_code
        own = self._from_record(log_offset)
        return code if own is None else own

    def is_listed(self, queue: ConsumeQueue, entry: LogEntry) -> bool:
        """Whether a message's unit says what dispatching it would have written."""
        if entry.sys_flag & NOT_QUEUED:
            return True
        unit = queue.unit(entry.queue_offset)
        if unit is None or unit[:2] != (entry.log_offset, entry.size):
            return False
        return self.real(queue, unit[0], unit[2]) == self.own(entry)

    def accepts(
        self,
        queue: ConsumeQueue,
        log_offset: int,
        address: int,
        accept_tags: AcceptTags | None,
        accept_ext: AcceptExt | None,
    ) -> bool:
        """Whether a message whose unit holds an address may match, as far as units can tell."""
        if accept_tags is None and accept_ext is None:
            return True
        unit = queue.ext.get(address) if queue.ext is not None else None
        if unit is not None:
            if accept_ext is not None and not accept_ext(*unit):
                return False
            return accept_tags is None or accept_tags(unit.tags_code)
        own = self._from_record(log_offset) if accept_tags is not None else None
        return accept_tags is None or own is None or accept_tags(own)

    def _from_record(self, log_offset: int) -> int | None:
        record = self._log.record_at(log_offset)
        if record is None:
            return None
        try:
            return self.own(log_entry(decode_record(record, 0, len(record))))
        except CorruptRecord:
            return None
