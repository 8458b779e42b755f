"""Reading the revive queues: check points are matched with their acknowledgements, and what is left is delivered again.

Rules kept here:

- A check point is settled two seconds after its invisible time at the earliest, and never before the timer has
  delivered everything that was due by then: its acknowledgements are in the queue, or never came.
- Check points of a queue are settled in its order. The queue's offset (of a group of its own) stands before the first
  that is not settled, and is saved only when the log has the redeliveries on disk: a crash repeats some, and loses
  none.
- A store that takes nothing stops the queue, not the broker: the same check point is tried again.
- A message that is gone, or newer than its check point because its topic began anew, is passed over. One that the store
  will never take goes to the dead letters. Neither holds up those behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rocketline.broker.pop.in_flight import InFlight
from rocketline.broker.pop.records import PopAck, PopCheckpoint, PopKey, decode_either
from rocketline.broker.pop.recovering import copies_since, settled_keys
from rocketline.broker.pop.redelivery import WORKER, Redelivery
from rocketline.broker.pop.revive_log import ACK, CHECKPOINT, EARLIER_MS, REVIVE_GROUP, ReviveLog
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import Topics
from rocketline.broker.turns import take_turns
from rocketline.clock import Clock
from rocketline.errors import BAD_ITEM, StoreError
from rocketline.message import TAGS
from rocketline.protocol.properties import property_in
from rocketline.protocol.records import Record, decode_record, read_start
from rocketline.store.message_store import MessageStore, ReadStatus
from rocketline.store.queue.dispatcher import Arrivals

log = logging.getLogger(__name__)

GRACE_MS = 2000
"""How long after the invisible time a check point waits for acknowledgements that were on their way."""
RECORDS_A_TURN = 256
"""Records read from one queue before other work gets its turn; and check points settled."""
TRY_AGAIN_MS = 1000

_tag_of = property_in(TAGS)


@dataclass(slots=True)
class _Open:
    """A check point that is not settled yet."""

    checkpoint: PopCheckpoint
    revive_offset: int
    due_ms: int
    """When its invisible time is over: soon after it came here, whatever it says itself."""
    acked: int


class _ReviveQueue:
    """One revive queue as far as it is read."""

    def __init__(self, queue_id: int, next_offset: int) -> None:
        self.queue_id = queue_id
        self.next_offset = next_offset
        self._settled_keys: set[PopKey] = set()
        self._started_ms = 0
        self.line: deque[_Open] = deque()
        self.by_key: dict[PopKey, _Open] = {}

    @property
    def settled(self) -> int:
        """The last record that nobody needs any more; -1: all are needed."""
        return (self.line[0].revive_offset if self.line else self.next_offset) - 1

    def expect_repeats(self, settled_keys: set[PopKey], now_ms: int) -> None:
        """After a crash the timer may go back, and bring check points again that are settled or soon will be."""
        self._settled_keys = settled_keys
        self._started_ms = now_ms

    def add(self, checkpoint: PopCheckpoint, offset: int, stored_ms: int) -> None:
        if checkpoint.key in self._settled_keys:
            return
        known = self.by_key.get(checkpoint.key)
        if known is not None:
            # The timer repeats after a crash: the same one, and its acknowledgements come again too.
            known.acked |= checkpoint.acked
            return
        # The timer brings it shortly before its time. One that says otherwise must not hold up the whole queue.
        due_ms = min(checkpoint.revive_ms, stored_ms + EARLIER_MS)
        opened = self.by_key[checkpoint.key] = _Open(checkpoint, offset, due_ms, checkpoint.acked)
        self.line.append(opened)

    def ack(self, ack: PopAck) -> None:
        opened = self.by_key.get(ack.key)
        if opened is None:
            return  # too late, or for nothing that was ever popped
        for offset in ack.offsets:
            bit = opened.checkpoint.bit_of(offset)
            if not bit:
                log.warning("offset %d was acknowledged, but is not in its check point %s", offset, ack.key)
            opened.acked |= bit

    def close_first(self) -> None:
        checkpoint = self.line.popleft().checkpoint
        del self.by_key[checkpoint.key]
        if checkpoint.revive_ms - EARLIER_MS <= self._started_ms:
            self._settled_keys.add(checkpoint.key)


class PopReviver:
    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        offsets: ConsumerOffsets,
        revive_log: ReviveLog,
        redelivery: Redelivery,
        in_flight: InFlight,
        clock: Clock,
        is_behind: Callable[[int], bool],
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._log = revive_log
        self._redelivery = redelivery
        self._in_flight = in_flight
        self._clock = clock
        self._is_behind = is_behind
        self._queues: list[_ReviveQueue] = []
        self.traffic = revive_log.traffic
        self.redelivered = redelivery.redelivered
        self._arrived = asyncio.Event()

    def load(self, *, after_crash: bool) -> None:
        """Take up where the offsets say; the store is open."""
        topic, store = self._log.topic, self._store
        since_ms = self._offsets.loaded_ms
        for queue_id in range(self._log.queue_count):
            settled = self._offsets.get(REVIVE_GROUP, topic, queue_id)
            first = store.min_offset(topic, queue_id) if settled is None else settled + 1
            # A power failure may have cost the end of the queue; the timer delivers that again.
            queue = _ReviveQueue(queue_id, min(first, store.max_offset(topic, queue_id)))
            self._queues.append(queue)
            if after_crash:
                queue.expect_repeats(
                    settled_keys(store, self._offsets, topic, queue_id, queue.next_offset), self._clock.now_ms()
                )
            first_ms = store.store_ms_of(topic, queue_id, queue.next_offset)
            since_ms = since_ms if first_ms < 0 else min(since_ms, first_ms)
        # Also after a clean stop: it may have come before all was settled that a crash had left.
        self._redelivery.made.update(copies_since(store, since_ms, self._topics.table))

    @property
    def open_count(self) -> int:
        """Check points read and not settled."""
        return sum(len(queue.line) for queue in self._queues)

    def behind(self) -> list[tuple[int, int, int]]:
        """(revive queue, records not read or not settled, milliseconds since the first of them was stored)."""
        topic, now_ms = self._log.topic, self._clock.now_ms()
        found = []
        for queue in self._queues:
            next_offset = queue.settled + 1
            records = max(0, self._store.max_offset(topic, queue.queue_id) - next_offset)
            stored_ms = self._store.store_ms_of(topic, queue.queue_id, next_offset) if records else -1
            found.append((queue.queue_id, records, 0 if stored_ms < 0 else max(0, now_ms - stored_ms)))
        return found

    def on_arrivals(self, arrivals: Arrivals) -> None:
        if not self._arrived.is_set() and self._log.topic in arrivals.topics:
            self._arrived.set()

    async def run(self) -> None:
        """Deliver again for ever: sleep until a check point is due or a record arrives."""
        await take_turns(self.turn, self._arrived)

    def turn(self) -> int | None:
        """Read and settle some; milliseconds until the next turn, None when nothing waits."""
        waits = [wait_ms for queue in self._queues if (wait_ms := self._turn_of(queue)) is not None]
        return min(waits, default=None)

    def _turn_of(self, queue: _ReviveQueue) -> int | None:
        before = queue.settled
        try:
            if self._read(queue):
                return 0  # all that is there is known before anything is settled
            return self._settle_due(queue)
        except StoreError as error:
            log.error("redeliveries of revive queue %d have to wait: %s", queue.queue_id, error)
            return TRY_AGAIN_MS
        finally:
            if queue.settled > before:
                self._offsets.commit("the reviver", REVIVE_GROUP, self._log.topic, queue.queue_id, queue.settled)

    def _read(self, queue: _ReviveQueue) -> bool:
        """Take in some records; whether there are more."""
        store, topic = self._store, self._log.topic
        found = store.read(topic, queue.queue_id, queue.next_offset, RECORDS_A_TURN)
        for chunk in found.chunks:
            position = 0
            while position < len(chunk):
                size = read_start(chunk, position)[0]
                try:
                    self._take_in(queue, decode_record(chunk, position, position + size))
                except BAD_ITEM as error:
                    self._redelivery.aside.item(WORKER, f"a record of revive queue {queue.queue_id}", error)
                position += size
        if found.status in (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE):
            return False
        moved = found.next_queue_offset != queue.next_offset
        if moved and not found.message_count:
            log.warning("revive queue %d goes on at %d instead of %d: %s", queue.queue_id, found.next_queue_offset,
                        queue.next_offset, found.status.name)  # fmt: skip
        queue.next_offset = found.next_queue_offset
        return moved

    def _take_in(self, queue: _ReviveQueue, record: Record) -> None:
        said = decode_either(_tag_of(record.properties.decode("utf-8", "replace")), bytes(record.body))
        if isinstance(said, PopCheckpoint):
            queue.add(said, record.queue_offset, record.store_ms)
            self.traffic.got[said.group, said.topic, CHECKPOINT, queue.queue_id] += 1
        elif isinstance(said, PopAck):
            queue.ack(said)
            self.traffic.got[said.key.group, said.key.topic, ACK, queue.queue_id] += 1
        else:
            raise ValueError(f"number {record.queue_offset} is neither check point nor acknowledgement")

    def _settle_due(self, queue: _ReviveQueue) -> int | None:
        for _ in range(RECORDS_A_TURN):
            if not queue.line:
                return None
            opened = queue.line[0]
            wait_ms = opened.due_ms + GRACE_MS - self._clock.now_ms()
            if wait_ms > 0:
                return wait_ms
            if self._is_behind(opened.due_ms):
                return TRY_AGAIN_MS
            self._settle(opened)
            queue.close_first()
        return 0

    def _settle(self, opened: _Open) -> None:
        """Deliver again what is not acknowledged; what is done is noted, so that trying again does not repeat it."""
        checkpoint = opened.checkpoint
        if self._topics.get(checkpoint.topic) is None or checkpoint.group not in self._groups.table:
            log.info("check point of %s for %s: one of them is gone", checkpoint.group, checkpoint.topic)
            return
        for index, offset in enumerate(checkpoint.offsets):
            if opened.acked >> index & 1:
                continue
            self._redelivery.deliver(checkpoint, offset)
            opened.acked |= 1 << index
            queue = (checkpoint.topic, checkpoint.group, checkpoint.queue_id)
            self._in_flight.remove(queue, 1, checkpoint.pop_ms)
