"""Delayed messages: one queue of SCHEDULE_TOPIC_XXXX per level, each in order of arrival and so in order of time.

A message with a delay level is stored under the schedule topic, its real topic and queue in its properties, and its
deliver time where the consume queue otherwise has the tag hash. When the time has come a copy goes to the real queue.
How far each level is delivered is kept in config/delayOffset.json; after a crash a few messages may be delivered twice,
none is lost. A message that cannot be delivered is set aside (`set_aside.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from rocketline.broker.delays.clock_rollback import SetBack
from rocketline.broker.detours import real_place, send_on_detour
from rocketline.broker.set_aside import SetAside, store_own
from rocketline.broker.tables.json_table import JsonTable
from rocketline.broker.tables.topics import SCHEDULE_TOPIC
from rocketline.broker.turns import take_turns
from rocketline.clock import Clock
from rocketline.errors import BAD_ITEM, RequestRejected, StoreError
from rocketline.message import DELAY, WAIT, LogOffset, QueueOffset
from rocketline.protocol.bodies import DataVersion, DelayOffsetTable
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.numbers import MAX_INT64, read_number
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.records import LogEntry, decode_record
from rocketline.store.message_store import MessageStore, StoreMessage, copy_of
from rocketline.store.queue.dispatcher import Arrivals

log = logging.getLogger(__name__)

WORKER = "delay levels"
DELIVERIES_A_TURN = 256
"""Messages delivered before other work gets its turn."""
LOOK_AGAIN_MS = 1000
"""A clock that is set forward does not end a sleep: while something waits, it is looked at this often."""
TRY_AGAIN_MS = 1000
ADDED_LATER_BYTES = len(f"{WAIT}\x01false\x02")
"""What delivery adds to the properties."""


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
        aside: SetAside,
        on_delivered: Callable[[str, int], None] | None = None,
    ) -> None:
        self._levels_ms = levels_ms
        self._store = store
        self._aside = aside
        self._file = file
        self._clock = clock
        self._stored = stored
        self._next: dict[int, int] = {}
        self._version = DataVersion(timestamp=clock.now_ms())
        self._lasting: dict[int, int] = {}
        """As `_next` was when all that was delivered by then was where nothing takes it away any more."""
        self._pending: tuple[dict[int, int], int] | None = None
        """Offsets that will be lasting, and up to where the log must be so before."""
        self._saved: dict[int, int] = {}
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
        self._saved = self._lasting = dict(self._next)

    def redirect(self, message: StoreMessage, level_text: str) -> None:
        """Send a message on its detour when it asks for a delay; `level_text` is its DELAY property."""
        level = read_number(level_text, lowest=-MAX_INT64)
        if level is None:
            shown = level_text[:80]
            raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, f"delay level {shown!r} is not a number")
        if level <= 0:
            return
        level = min(level, len(self._levels_ms))
        message.properties[DELAY] = str(level)
        send_on_detour(message, SCHEDULE_TOPIC, level - 1, ADDED_LATER_BYTES)

    def on_arrivals(self, arrivals: Arrivals) -> None:
        if SCHEDULE_TOPIC not in arrivals.topics:
            return
        self._arrived.set()
        for entry in arrivals:
            if entry.topic == SCHEDULE_TOPIC and entry.store_ms > self._clock.now_ms():
                self._set_back.came(entry.queue_id, entry.queue_offset)

    async def run(self) -> None:
        """Deliver for ever: sleep until the next message is due or a new one arrives."""
        await take_turns(self._turn, self._arrived)

    def _turn(self) -> int | None:
        wait_ms = self.deliver_due()
        return None if wait_ms is None else min(wait_ms, LOOK_AGAIN_MS)

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
            try:
                self._deliver_or_set_aside(unit.log_offset)
            except StoreError as error:
                log.error("delayed messages of level %d have to wait: %s", level, error)
                return TRY_AGAIN_MS
            offset += 1
            self._next[level] = offset
        return 0

    def _deliver_or_set_aside(self, log_offset: LogOffset) -> None:
        """A StoreError: the store does not take it now."""
        try:
            self._deliver(log_offset)
        except BAD_ITEM as error:
            self._aside.message(WORKER, log_offset, error)

    def _deliver(self, log_offset: LogOffset) -> None:
        """Store the real message."""
        view = self._store.record_at(log_offset)
        if view is None:
            raise LookupError("it is no longer in the log")
        record = decode_record(view, 0, len(view))
        properties = decode_properties(record.properties.decode("utf-8", "replace"))
        topic, queue_id = real_place(properties)
        # Apache's copies keep DELAY, REAL_TOPIC and REAL_QID; nobody may act on them again.
        properties[WAIT] = "false"
        result = store_own(self._store, copy_of(record, topic, queue_id, properties))
        self._stored()
        if self._on_delivered is not None:
            self._on_delivered(topic, result.size)

    def follow(self, master: DelayOffsetTable) -> None:
        """Take over how far a master has delivered."""
        self._next = dict(master.offset_table)

    def snapshot(self) -> DelayOffsetTable:
        """How far each level is delivered now."""
        return DelayOffsetTable(data_version=self._version, offset_table=dict(self._next))

    def lasting(self) -> DelayOffsetTable:
        """How far each level is delivered for good, as a replica may go by: with a message that only this broker has, the
        word that it was delivered must go too."""
        self._settle()
        return DelayOffsetTable(data_version=self._version, offset_table=dict(self._lasting))

    def _settle(self) -> None:
        for _ in range(2):
            if self._pending is None and self._next != self._lasting:
                self._pending = dict(self._next), self._store.log_next_offset
            if self._pending is None or self._store.lasting_offset < self._pending[1]:
                return
            self._lasting, self._pending = self._pending[0], None

    def take_changes(self) -> bytes | None:
        """The file's next content, when anything changed and the messages it calls delivered are on disk.

        Otherwise a power failure could keep the word that a message was delivered and lose the message.
        """
        self._settle()
        if self._lasting == self._saved:
            return None
        self._saved = self._lasting
        self._version = self._version.advanced(self._clock.now_ms())
        return self._file.encode(DelayOffsetTable(data_version=self._version, offset_table=self._saved))

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except StoreError:
            self._saved = {}  # or the next save would think that there is nothing to do
            raise
