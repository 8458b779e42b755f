"""One pop: through the queues in their order, until it has enough.

Each queue is read from where the group stands; what it gives gets its check point, or its place in the order, before
anything is answered. An error at one queue is logged and the pop goes on with the next. `rest` adds up what the visited
queues still have.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from rocketline.broker.config import PopConfig
from rocketline.broker.pop.checkpoints import PopCheckpoints
from rocketline.broker.pop.in_flight import InFlight
from rocketline.broker.pop.ordered import OrderCount, OrderedPops
from rocketline.broker.pop.records import new_checkpoint
from rocketline.broker.selection import Selection
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.topics import Topics
from rocketline.broker.wiring import wired
from rocketline.errors import CorruptRecord, RequestRejected, StoreError
from rocketline.message import POP_CK, QueueOffset
from rocketline.protocol.headers.pop import INIT_MIN
from rocketline.protocol.pop_info import (
    NORMAL,
    RETRY_V1,
    RETRY_V2,
    QueueKey,
    ReceiptHandle,
    pop_retry_topic,
)
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES
from rocketline.protocol.records import Buffer, decode_record, encode_record, record_head
from rocketline.store.message_store import MessageStore, ReadResult, ReadStatus

log = logging.getLogger(__name__)

_WRONG_OFFSET = (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY, ReadStatus.OFFSET_FOUND_NULL)
_NOTHING_FOR_US = (
    ReadStatus.NO_MATCHED_MESSAGE,
    ReadStatus.OFFSET_FOUND_NULL,
    ReadStatus.MESSAGE_WAS_REMOVING,
)
_RECORD = struct.Struct(">i16xq")
"""Size and queue offset of a stored record."""


@dataclass(slots=True)
class Pop:
    """What a pop asks for, and what it has got so far."""

    group: str
    topic: str
    queue_id: int
    wanted: int
    invisible_ms: int
    init_mode: int
    is_ordered: bool
    attempt_id: str | None
    selected: Selection
    pop_ms: int
    revive_queue_id: int
    count: int = 0
    size: int = 0
    rest: int = 0
    starts: dict[QueueKey, int] = field(default_factory=dict)
    offsets: dict[QueueKey, list[int]] = field(default_factory=dict)
    order_counts: list[tuple[int, int, QueueOffset | None, int]] = field(default_factory=list)
    chunks: list[Buffer] = field(default_factory=list)
    blocked_ms: int = 0
    """When the first of the queues that were blocked is free again; 0: none was."""


@wired
class Popping:
    config: PopConfig
    store: MessageStore
    topics: Topics
    offsets: ConsumerOffsets
    checkpoints: PopCheckpoints
    ordered: OrderedPops
    in_flight: InFlight
    random: Random
    broker_name: str

    def run(self, pop: Pop) -> None:
        """Take messages for a pop."""
        turn = self.random.randrange(100)
        retry_flag = self._retry_flag(turn)
        retry_topic = pop_retry_topic(pop.group, pop.topic, retry_flag)
        retry_first = turn < self.config.retry_first_percent
        if retry_first and not pop.is_ordered:
            self._take_all(pop, retry_topic, retry_flag, turn)
        if pop.queue_id < 0:
            self._take_all(pop, pop.topic, NORMAL, turn)
        else:
            self._try(pop, pop.topic, pop.queue_id, NORMAL)
        if not retry_first and not pop.is_ordered and pop.count < pop.wanted:
            self._take_all(pop, retry_topic, retry_flag, turn)

    def _retry_flag(self, turn: int) -> int:
        """Which of the retry topics this pop looks at: its answer has room for one."""
        if not self.config.retry_v2:
            return RETRY_V1
        return RETRY_V1 if self.config.reads_retry_v1 and turn % 2 == 0 else RETRY_V2

    def retry_topics(self, group: str, topic: str) -> tuple[str, ...]:
        """Where redeliveries of a group may lie."""
        v1 = pop_retry_topic(group, topic, RETRY_V1)
        if not self.config.retry_v2:
            return (v1,)
        v2 = pop_retry_topic(group, topic, RETRY_V2)
        return (v2, v1) if self.config.reads_retry_v1 else (v2,)

    def _take_all(self, pop: Pop, topic: str, flag: int, turn: int) -> None:
        for queue_id in self.queue_ids(topic, turn):
            self._try(pop, topic, queue_id, flag)

    def queue_ids(self, topic: str, turn: int) -> Iterable[int]:
        """All queues of a topic, another one first each time; none when there is no such topic."""
        config = self.topics.get(topic)
        count = config.read_queue_nums if config is not None else 0
        return ((turn + number) % count for number in range(count))

    def _try(self, pop: Pop, topic: str, queue_id: int, flag: int) -> None:
        try:
            self._take(pop, topic, queue_id, flag)
        except RequestRejected as error:
            log.error("%s gets nothing of %s queue %d: %s", pop.group, topic, queue_id, error.remark)
        except (StoreError, CorruptRecord) as error:
            log.error("%s gets nothing of %s queue %d: %s", pop.group, topic, queue_id, error)

    def _take(self, pop: Pop, topic: str, queue_id: int, flag: int) -> None:
        store, group = self.store, pop.group
        if self.offsets.has_resets and self.offsets.take_reset(group, topic, queue_id) is not None:
            self.checkpoints.leave((topic, group, queue_id))
            self.ordered.release(topic, group, queue_id)
        if pop.is_ordered and (wait_ms := self.ordered.blocked_ms(topic, group, queue_id, pop.attempt_id)):
            pop.blocked_ms = min(pop.blocked_ms or wait_ms, wait_ms)
            return
        position = self._position(pop, topic, queue_id, flag)
        end = store.max_offset(topic, queue_id)
        if position == end:
            return
        if pop.count >= pop.wanted or self._has_too_many(topic, group, queue_id):
            pop.rest += max(0, end - position)
            return
        found = self._read(pop, topic, queue_id, position)
        if found.status in _WRONG_OFFSET:
            position = self._repair(topic, group, queue_id, position, found.next_queue_offset)
            found = self._read(pop, topic, queue_id, position)
        if found.message_count:
            self._give(pop, topic, queue_id, flag, position, found)
        elif found.status in _NOTHING_FOR_US and found.next_queue_offset > position:
            self.checkpoints.skip(topic, group, queue_id, found.next_queue_offset)
        pop.rest += max(0, end - found.next_queue_offset)

    def _has_too_many(self, topic: str, group: str, queue_id: int) -> bool:
        config = self.config
        return config.limits_in_flight and self.in_flight.of_queue((topic, group, queue_id)) > config.max_in_flight

    def _read(self, pop: Pop, topic: str, queue_id: int, position: int) -> ReadResult:
        selected = pop.selected
        return self.store.read(
            topic,
            queue_id,
            position,
            pop.wanted - pop.count,
            accept_tags=selected.accept_tags,
            accept_record=selected.accept_record,
            accept_ext=selected.accept_ext,
        )

    # Where a group stands

    def _position(self, pop: Pop, topic: str, queue_id: int, flag: int) -> int:
        group, offsets = pop.group, self.offsets
        committed = offsets.get(group, topic, queue_id)
        if committed is None:
            first = self._first(topic, queue_id, pop.init_mode if flag == NORMAL else INIT_MIN)
            offsets.commit("a first pop", group, topic, queue_id, first)
            return first
        return max(committed, self.checkpoints.position(topic, group, queue_id))

    def _repair(self, topic: str, group: str, queue_id: int, wrong: int, right: int) -> int:
        """Put a group where its queue has messages: files were deleted, or the queue began anew."""
        log.warning(
            "%s stood at %d of %s queue %d, which is not there: now at %d", group, wrong, topic, queue_id, right
        )
        if right < wrong:
            self.checkpoints.leave((topic, group, queue_id))
        self.checkpoints.skip(topic, group, queue_id, right)
        return right

    def _first(self, topic: str, queue_id: int, init_mode: int) -> int:
        store = self.store
        start = store.min_offset(topic, queue_id)
        if init_mode == INIT_MIN:
            return start
        if self.config.init_by_memory and start <= 0:
            unit = store.unit_at(topic, queue_id, start)
            if unit is not None and store.in_memory(unit.log_offset):
                return 0
        return max(0, store.max_offset(topic, queue_id) - 1)

    def peek_position(self, group: str, topic: str, queue_id: int) -> int:
        """Where a pop would read, changing nothing."""
        committed = self.offsets.get(group, topic, queue_id)
        if committed is None:
            return self.store.min_offset(topic, queue_id)
        return max(committed, self.checkpoints.position(topic, group, queue_id))

    # What it gets

    def _give(self, pop: Pop, topic: str, queue_id: int, flag: int, position: int, found: ReadResult) -> None:
        group, after = pop.group, found.next_queue_offset
        numbers = _offsets_of(found, position)
        if pop.is_ordered:
            counts = self.ordered.give(
                topic, group, queue_id, numbers, pop.pop_ms, pop.invisible_ms, (pop.attempt_id or "")[:256] or None
            )
            self._count_orders(pop, queue_id, flag, counts)
            # The offset waits in front of the batch until that is acknowledged.
            self.offsets.commit("an ordered pop", group, topic, queue_id, numbers[0])
        else:
            checkpoint = new_checkpoint(group, topic, queue_id, numbers, pop.pop_ms, pop.invisible_ms, self.broker_name)
            self.checkpoints.add(checkpoint, pop.revive_queue_id, after)
        self.offsets.note_pulled(group, topic, queue_id, after)
        pop.starts[flag, queue_id] = numbers[0]
        pop.offsets[flag, queue_id] = numbers
        pop.count += found.message_count
        pop.size += found.total_bytes
        if flag == NORMAL or self.config.returns_retry_topic:
            pop.chunks += found.chunks
        else:
            pop.chunks += self._redelivered(pop, flag, numbers[0], found.chunks)

    @staticmethod
    def _count_orders(pop: Pop, queue_id: int, flag: int, counts: list[OrderCount]) -> None:
        pop.order_counts += [(flag, queue_id, offset, count) for offset, count in counts]

    def _redelivered(self, pop: Pop, flag: int, start: int, chunks: list[memoryview]) -> list[bytes]:
        """Messages of a retry topic as if they lay on the topic asked for; their handles say where they do."""
        records = []
        for chunk in chunks:
            position = 0
            while position < len(chunk):
                record = decode_record(chunk, position, len(chunk))
                position += record.size
                handle = ReceiptHandle(
                    start,
                    pop.pop_ms,
                    pop.invisible_ms,
                    pop.revive_queue_id,
                    flag,
                    self.broker_name,
                    record.queue_id,
                    record.queue_offset,
                )
                properties = record.properties
                if properties and not properties.endswith(b"\x02"):
                    properties += b"\x02"
                properties += f"{POP_CK}\x01{handle}\x02".encode()
                topic = pop.topic
                if len(properties) > MAX_PROPERTIES_BYTES:
                    # Under its own topic the client makes the handle itself.
                    properties, topic = record.properties, record.topic
                records.append(encode_record(record_head(record, topic), record.body, properties))
        return records


def _offsets_of(found: ReadResult, start: int) -> list[int]:
    """Queue offsets of what was found; read from the records only when some were left out."""
    count = found.message_count
    if found.next_queue_offset - start == count:
        return list(range(start, start + count))
    offsets = []
    for chunk in found.chunks:
        position = 0
        while position < len(chunk):
            size, queue_offset = _RECORD.unpack_from(chunk, position)
            offsets.append(queue_offset)
            position += size
    return offsets
