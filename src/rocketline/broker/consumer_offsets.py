"""How far each group has read each queue, kept in config/consumerOffset.json.

Stored as given, backwards too (a reset is a commit). Answers come from memory; the file follows every few seconds and
at a clean stop, so a crash repeats a few messages and never skips one.
"""

from __future__ import annotations

import logging

from rocketline.broker.saved import SavedTable
from rocketline.clock import Clock
from rocketline.errors import StoreError
from rocketline.message import ConsumerOffset
from rocketline.protocol.bodies import ConsumerOffsetTable, DataVersion

log = logging.getLogger(__name__)

SEPARATOR = "@"


class ConsumerOffsets:
    """Next offset to read, by `topic@group` and queue."""

    def __init__(self, file: SavedTable[ConsumerOffsetTable], clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._table: dict[str, dict[int, int]] = {}
        self._version = DataVersion(timestamp=clock.now_ms())
        self._changed = False

    def load(self) -> None:
        saved = self._file.load()
        if saved is not None:
            self._table = saved.offset_table
            self._version = saved.data_version

    def get(self, group: str, topic: str, queue_id: int) -> ConsumerOffset | None:
        offset = self._table.get(f"{topic}@{group}", {}).get(queue_id)
        return None if offset is None else ConsumerOffset(offset)

    def commit(self, client: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        key = f"{topic}@{group}"
        queues = self._table.get(key)
        if queues is None:
            queues = self._table[key] = {}
        before = queues.get(queue_id)
        if before is not None and offset < before:
            log.warning("%s moves %s queue %d back from %d to %d", client, key, queue_id, before, offset)
        queues[queue_id] = offset
        self._changed = True

    def cap(self, group_topic: str, queue_id: int, limit: int) -> None:
        """An offset is never ahead of its queue: what a crash took from the log it takes from here too."""
        queues = self._table.get(group_topic, {})
        if queues.get(queue_id, 0) > limit:
            log.warning(
                "offset %d of %s queue %d is past the log: now %d", queues[queue_id], group_topic, queue_id, limit
            )
            queues[queue_id] = limit
            self._changed = True

    def forget_topic(self, topic: str) -> None:
        for key in [key for key in self._table if key.partition(SEPARATOR)[0] == topic]:
            del self._table[key]
            self._changed = True

    def forget_group(self, group: str) -> None:
        for key in [key for key in self._table if key.partition(SEPARATOR)[2] == group]:
            del self._table[key]
            self._changed = True

    def items(self) -> list[tuple[str, int, int]]:
        """(`topic@group`, queue, offset) of everything."""
        return [(key, queue, offset) for key, queues in self._table.items() for queue, offset in queues.items()]

    def take_changes(self) -> bytes | None:
        """The file's next content when anything changed since the last call; encoding is the loop's, writing is not."""
        if not self._changed:
            return None
        self._changed = False
        self._version = self._version.advanced(self._clock.now_ms())
        table = ConsumerOffsetTable(data_version=self._version, offset_table=self._table)
        return self._file.encode(table)

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except StoreError:
            self._changed = True  # or the next save would think that there is nothing to do
            raise
