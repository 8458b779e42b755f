"""How far each group has read each queue, stored in config/consumerOffset.json.

Offsets are stored as given, backwards too. Answers come from memory; the file is written every few seconds and at a clean
stop, so a crash repeats a few messages and never skips one.

An operator's reset sets the offset at once, and a note that stays until the queue is pulled next. While the note is there
commits are ignored: the consumer does not know of the reset yet.

Offsets that the broker itself moves may depend on what it has just stored. They are saved only when the log is on disk
that far: after a power failure an offset must not be ahead of the record that replaces the messages before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from rocketline.broker.tables.json_table import JsonTable
from rocketline.clock import Clock
from rocketline.errors import StoreError
from rocketline.message import ConsumerOffset
from rocketline.protocol.bodies import ConsumerOffsetTable, DataVersion

log = logging.getLogger(__name__)

SEPARATOR = "@"


class ConsumerOffsets:
    """Next offset to read, by `topic@group` and queue."""

    def __init__(
        self, file: JsonTable[ConsumerOffsetTable], clock: Clock, flushed_offset: Callable[[], int] | None = None
    ) -> None:
        """`flushed_offset` says up to where the log is on disk; None: it always is as far as it must be."""
        self._file = file
        self._clock = clock
        self._table: dict[str, dict[int, int]] = {}
        self._version = DataVersion(timestamp=clock.now_ms())
        self._changed = False
        self._resets: dict[tuple[str, int], int] = {}
        self._pulled: dict[str, dict[int, int]] = {}
        self._flushed_offset = flushed_offset
        self._rests_on = 0
        """Up to where the log must be on disk before the offsets are saved."""
        self._unsaved: tuple[bytes, int] | None = None
        self.loaded_ms = 0
        """When the offsets that were loaded had been saved; 0 when there were none."""

    def load(self) -> None:
        saved = self._file.load()
        if saved is not None:
            self._table = saved.offset_table
            self._version = saved.data_version
            self.loaded_ms = saved.data_version.timestamp

    def get(self, group: str, topic: str, queue_id: int) -> ConsumerOffset | None:
        offset = self._table.get(f"{topic}@{group}", {}).get(queue_id)
        return None if offset is None else ConsumerOffset(offset)

    def commit(self, client: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        key = f"{topic}@{group}"
        if self._resets and (key, queue_id) in self._resets:
            return
        queues = self._table.get(key)
        if queues is None:
            queues = self._table[key] = {}
        before = queues.get(queue_id)
        if before is not None and offset < before:
            log.warning("%s moves %s queue %d back from %d to %d", client, key, queue_id, before, offset)
        queues[queue_id] = offset
        self._changed = True

    def save_after(self, log_offset: int) -> None:
        """What was committed so far depends on the log up to here."""
        if log_offset > self._rests_on:
            self._rests_on = log_offset

    def follow(self, master: ConsumerOffsetTable, *, forgets: bool = False) -> None:
        """Take over the offsets of a master; what it does not have stays, unless it `forgets`: then that is of groups and
        topics that were deleted, and would move those that are made anew."""
        if forgets and self._table.keys() - master.offset_table.keys():
            self._forget(lambda key: key not in master.offset_table)
        for key, queues in master.offset_table.items():
            own = self._table.setdefault(key, {})
            if own != queues:
                if forgets:
                    own.clear()
                own.update(queues)
                self._changed = True

    def take_ahead(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """Take over offsets that are higher than those here, or that there are none of here."""
        for key, queues in table.items():
            own = self._table.setdefault(key, {})
            ahead = {queue_id: offset for queue_id, offset in queues.items() if offset > own.get(queue_id, -1)}
            own.update(ahead)
            self._changed |= bool(ahead)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Move a group; the next pull of the queue is answered with the new offset."""
        key = f"{topic}@{group}"
        self._table.setdefault(key, {})[queue_id] = offset
        self._resets[key, queue_id] = offset
        self._pulled.get(key, {}).pop(queue_id, None)
        self._changed = True

    @property
    def has_resets(self) -> bool:
        """Whether any queue waits for its consumer to hear of a reset."""
        return bool(self._resets)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the queue was reset to, returned once: the caller tells the consumer."""
        return self._resets.pop((f"{topic}@{group}", queue_id), None)

    def note_pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Note where a group reads next; what lies between its commit and here is in flight."""
        self.note_pulled_as(f"{topic}@{group}", queue_id, next_offset)

    def note_pulled_as(self, key: str, queue_id: int, next_offset: int) -> None:
        """The same for frequent callers, which keep the key TOPIC@GROUP."""
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = next_offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        return self._pulled.get(f"{topic}@{group}", {}).get(queue_id)

    def pulled_of(self, group: str, topic: str) -> dict[int, int]:
        """Up to where a group has pulled a topic, by queue."""
        return dict(self._pulled.get(f"{topic}@{group}", {}))

    def of(self, group: str, topic: str) -> dict[int, int]:
        """A group's offsets in a topic by queue."""
        return dict(self._table.get(f"{topic}@{group}", {}))

    def topics_by_group(self) -> dict[str, list[str]]:
        """All groups that have an offset anywhere, with the topics."""
        groups: dict[str, list[str]] = {}
        for topic, _, group in map(_parts, self._table):
            groups.setdefault(group, []).append(topic)
        return groups

    def topics_of(self, group: str) -> list[str]:
        """Topics a group has an offset in."""
        return sorted(topic for topic, _, name in map(_parts, self._table) if name == group)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have an offset in a topic."""
        return sorted(group for name, _, group in map(_parts, self._table) if name == topic)

    def clone(self, source: str, target: str, topic: str) -> bool:
        """Give a group the offsets of another in a topic; False when that one has none."""
        offsets = self._table.get(f"{topic}@{source}")
        if offsets is None:
            return False
        self._table[f"{topic}@{target}"] = dict(offsets)
        self._changed = True
        return True

    def cap(self, group_topic: str, queue_id: int, limit: int) -> None:
        """Lower an offset that is ahead of its queue, because a crash took the end of the log."""
        queues = self._table.get(group_topic, {})
        if queues.get(queue_id, 0) > limit:
            log.warning(
                "offset %d of %s queue %d is past the log: now %d", queues[queue_id], group_topic, queue_id, limit
            )
            queues[queue_id] = limit
            self._changed = True

    def forget_topic(self, topic: str) -> None:
        self._forget(lambda key: _parts(key)[0] == topic)

    def forget_group(self, group: str) -> None:
        self._forget(lambda key: _parts(key)[2] == group)

    def _forget(self, gone: Callable[[str], bool]) -> None:
        for key in [key for key in self._table if gone(key)]:
            del self._table[key]
            self._changed = True
        self._pulled = {key: queues for key, queues in self._pulled.items() if not gone(key)}
        self._resets = {queue: offset for queue, offset in self._resets.items() if not gone(queue[0])}

    def snapshot(self) -> ConsumerOffsetTable:
        """Everything, as the file has it."""
        return ConsumerOffsetTable(data_version=self._version, offset_table=self._table)

    def items(self) -> list[tuple[str, int, int]]:
        """(`topic@group`, queue, offset) of everything."""
        return [(key, queue, offset) for key, queues in self._table.items() for queue, offset in queues.items()]

    def take_changes(self) -> bytes | None:
        """The file's next content, when anything changed since the last call and what it depends on is on disk. Encoded on
        the loop, to be written off it."""
        if self._unsaved is None and self._changed:
            self._changed = False
            self._version = self._version.advanced(self._clock.now_ms())
            self._unsaved = self._file.encode(self.snapshot()), self._rests_on
        if self._unsaved is None:
            return None
        if self._flushed_offset is not None and self._flushed_offset() < self._unsaved[1]:
            return None
        data, self._unsaved = self._unsaved[0], None
        return data

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except StoreError:
            self._changed = True  # or the next save would do nothing
            raise


def _parts(key: str) -> tuple[str, str, str]:
    """(topic, separator, group) of a key."""
    return key.partition(SEPARATOR)
