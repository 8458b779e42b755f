"""Delayed messages: one queue of SCHEDULE_TOPIC_XXXX per level, each in order of arrival and so in order of time.

A message with a delay level is stored under the schedule topic, its real topic and queue in its properties, and its
deliver time where the consume queue otherwise has the tag hash. When the time has come a copy goes to the real queue.
How far each level is delivered is kept in config/delayOffset.json; after a crash a few messages may be delivered twice,
none is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from rocketline.broker.delays.clock_rollback import SetBack
from rocketline.broker.tables.json_table import JsonTable
from rocketline.broker.tables.topics import SCHEDULE_TOPIC
from rocketline.clock import Clock
from rocketline.errors import RequestRejected, StoreError
from rocketline.message import DELAY, REAL_QID, REAL_TOPIC, WAIT, LogOffset, QueueOffset
from rocketline.protocol.bodies import DataVersion, DelayOffsetTable
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, decode_properties, encode_properties
from rocketline.protocol.records import LogEntry, decode_record
from rocketline.store.message_store import AppendStatus, MessageStore, StoreMessage
from rocketline.store.queue.dispatcher import Arrivals

log = logging.getLogger(__name__)

DELIVERIES_A_TURN = 256
"""Messages delivered before other work gets its turn."""
LOOK_AGAIN_MS = 1000
"""A clock that is set forward does not end a sleep: while something waits, it is looked at this often."""


def deliver_time_codes(levels_ms: tuple[int, ...]) -> Callable[[LogEntry], int]:
    """What a consume queue holds for a message: its tag hash, or for a delayed one its deliver time."""
    return _DeliverTimes(levels_ms)


@dataclass(frozen=True)
class _DeliverTimes:
    levels_ms: tuple[int, ...]
    only_topic: ClassVar[str] = SCHEDULE_TOPIC
    """Messages of other topics keep their tag hash: nobody need ask."""

    def __call__(self, entry: LogEntry) -> int:
        if entry.topic != SCHEDULE_TOPIC:
            return entry.tags_code
        return entry.store_ms + self.levels_ms[min(entry.queue_id, len(self.levels_ms) - 1)]


class DelayLevels:
    """Takes delayed messages in and lets them out when they are due."""

    def __init__(
        self,
        levels_ms: tuple[int, ...],
        store: MessageStore,
        file: JsonTable[DelayOffsetTable],
        clock: Clock,
        stored: Callable[[], None],
        on_delivered: Callable[[str, int], None] | None = None,
    ) -> None:
        self._levels_ms = levels_ms
        self._store = store
        self._file = file
        self._clock = clock
        self._stored = stored
        self._next: dict[int, int] = {}
        self._version = DataVersion(timestamp=clock.now_ms())
        self._changed = False
        self._unsaved: tuple[dict[int, int], int] | None = None
        """Offsets to save, and up to where the log must be on disk before."""
        self._arrived = asyncio.Event()
        self._set_back = SetBack(clock)
        self._on_delivered = on_delivered
        """Told of every message let out: its topic, and its bytes in the log."""

    def load(self) -> None:
        saved = self._file.load()
        if saved is not None:
            self._next = dict(saved.offset_table)
            self._version = saved.data_version
        for level, offset in self._next.items():
            limit = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            if offset > limit:
                log.warning("delay level %d was at %d, but the log has only %d messages of it", level, offset, limit)
                self._next[level] = limit

    def redirect(self, message: StoreMessage, level_text: str) -> None:
        """Send a message on its detour when it asks for a delay; `level_text` is its DELAY property."""
        try:
            level = int(level_text)
        except ValueError:
            raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, f"delay level {level_text!r} is not a number") from None
        if level <= 0:
            return
        level = min(level, len(self._levels_ms))
        message.properties[DELAY] = str(level)
        message.properties[REAL_TOPIC] = message.topic
        message.properties[REAL_QID] = str(message.queue_id)
        message.topic = SCHEDULE_TOPIC
        message.queue_id = level - 1
        message.properties_raw = encode_properties(message.properties).encode()
        if len(message.properties_raw) > MAX_PROPERTIES_BYTES:
            raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, "the message's properties are too large")

    def on_arrivals(self, arrivals: Arrivals) -> None:
        if SCHEDULE_TOPIC not in arrivals.topics:
            return
        self._arrived.set()
        for entry in arrivals:
            if entry.topic == SCHEDULE_TOPIC and entry.store_ms > self._clock.now_ms():
                self._set_back.came(entry.queue_id, entry.queue_offset)

    async def run(self) -> None:
        """Deliver for ever: sleep until the next message is due or a new one arrives."""
        while True:
            self._arrived.clear()
            wait_ms = self.deliver_due()
            try:
                async with asyncio.timeout(None if wait_ms is None else max(1, min(wait_ms, LOOK_AGAIN_MS)) / 1000):
                    await self._arrived.wait()
            except TimeoutError:
                continue

    def deliver_due(self) -> int | None:
        """Deliver what is due; milliseconds until the next turn, None when nothing is scheduled."""
        waits = [
            wait for level in range(1, len(self._levels_ms) + 1) if (wait := self._deliver_level(level)) is not None
        ]
        return min(waits, default=None)

    def _deliver_level(self, level: int) -> int | None:
        store, queue_id, delay_ms = self._store, level - 1, self._levels_ms[level - 1]
        offset = max(self._next.get(level, 0), store.min_offset(SCHEDULE_TOPIC, queue_id))
        for _ in range(DELIVERIES_A_TURN):
            unit = store.unit_at(SCHEDULE_TOPIC, queue_id, QueueOffset(offset))
            if unit is None:
                return None
            wait_ms = unit.tags_code - self._clock.now_ms()
            if wait_ms > delay_ms or self._set_back.is_noted:
                wait_ms = self._set_back.left_ms(queue_id, offset, wait_ms, delay_ms)
            if wait_ms > 0:
                return wait_ms
            if not self._deliver(unit.log_offset):
                return 1000
            offset += 1
            self._next[level] = offset
            self._changed = True
        return 0

    def _deliver(self, log_offset: LogOffset) -> bool:
        """Store the real message; False when the store does not take it now."""
        view = self._store.record_at(log_offset)
        if view is None:
            log.error("delayed message at %d is no longer in the log", log_offset)
            return True
        record = decode_record(view, 0, len(view))
        properties = decode_properties(record.properties.decode("utf-8", "replace"))
        topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QID, "")
        if topic is None or not queue_id.isdecimal():
            log.error("delayed message at %d names no real topic and queue", log_offset)
            return True
        # Apache's copies keep DELAY, REAL_TOPIC and REAL_QID; nobody may act on them again.
        properties[WAIT] = "false"
        result = self._store.append(
            StoreMessage(
                topic=topic,
                queue_id=int(queue_id),
                body=record.body,
                properties=properties,
                properties_raw=encode_properties(properties).encode(),
                flag=record.flag,
                sys_flag=record.sys_flag,
                born_ms=record.born_ms,
                born_host=record.born_host,
                reconsume_times=record.reconsume_times,
                prepared_log_offset=record.prepared_log_offset,
            )
        )
        if result.status is not AppendStatus.OK:
            log.error("delayed message at %d cannot be delivered now: %s", log_offset, result.reason)
            return False
        self._stored()
        if self._on_delivered is not None:
            self._on_delivered(topic, result.size)
        return True

    def snapshot(self) -> DelayOffsetTable:
        """How far each level is delivered now."""
        return DelayOffsetTable(data_version=self._version, offset_table=dict(self._next))

    def take_changes(self) -> bytes | None:
        """The file's next content, when anything changed and the messages it calls delivered are on disk.

        Otherwise a power failure could keep the word that a message was delivered and lose the message.
        """
        if self._unsaved is None and self._changed:
            self._unsaved = dict(self._next), self._store.log_next_offset
            self._changed = False
        if self._unsaved is None or self._store.flushed_offset < self._unsaved[1]:
            return None
        offsets, self._unsaved = self._unsaved[0], None
        self._version = self._version.advanced(self._clock.now_ms())
        return self._file.encode(DelayOffsetTable(data_version=self._version, offset_table=offsets))

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except StoreError:
            self._changed = True  # or the next save would think that there is nothing to do
            raise
