"""Popping in order: what of each queue is in a consumer's hands, kept in config/consumerOrderInfo.json.

A queue gives a batch, and then nothing until every message of it is acknowledged or visible again; then the group's
offset, which stands at the first message that is not acknowledged, leads to the same ones. An attempt that is repeated
under the same id, because its answer was lost, gets its batch again at once. How often each message was given is
counted and told.

Nothing of this is in the log. A crash goes back to what was saved last: a batch may be given twice, and never another
one first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec import UNSET, UnsetType, field

from rocketline.broker.tables.json_table import JsonTable
from rocketline.clock import Clock
from rocketline.errors import StoreError
from rocketline.message import QueueOffset
from rocketline.protocol.bodies.json_body import Body, Int32, Int64

log = logging.getLogger(__name__)

FORGET_AFTER_MS = 24 * 3600 * 1000
MAX_ATTEMPT_CHARS = 256
NEVER = -1


class OrderInfo(Body):
    """The batch of one queue that was popped last."""

    pop_time: Int64 = 0
    invisible_ms: Int64 | None = field(name="i", default=None)
    places: list[Int64] = field(name="o", default_factory=list)
    """The first offset, and the distances of the others from it."""
    visible_ms: dict[Int64, Int64] | UnsetType = field(name="ot", default=UNSET)
    counts: dict[Int64, Int32] | UnsetType = field(name="oc", default=UNSET)
    used_ms: Int64 = field(name="l", default=0)
    acked: Int64 = field(name="cm", default=0)
    attempt_id: str | None = field(name="a", default=None)

    @property
    def offsets(self) -> list[int]:
        first = self.places[:1]
        return first + [first[0] + distance for distance in self.places[1:]]

    def free_ms(self) -> int:
        """When the last message that is not acknowledged is visible again; NEVER (-1) when all are."""
        free_ms = NEVER
        visible = self.visible_ms or {}
        for index, offset in enumerate(self.offsets):
            if not self.acked >> index & 1:
                free_ms = max(free_ms, visible.get(offset, self.pop_time + (self.invisible_ms or 0)))
        return free_ms

    @property
    def next_offset(self) -> int:
        """The first message that is not acknowledged, or the one behind the batch."""
        offsets = self.offsets
        for index, offset in enumerate(offsets):
            if not self.acked >> index & 1:
                return offset
        return offsets[-1] + 1


class OrderInfoTable(Body):
    """By `topic@group` and queue."""

    ordered_consumption_level: str = "QUEUE"
    table: dict[str, dict[Int32, OrderInfo]] = field(default_factory=dict)


OrderCount = tuple[QueueOffset | None, int]
"""How often a message (None: each message of the queue, at least) was given before."""


class OrderedPops:
    def __init__(self, file: JsonTable[OrderInfoTable], clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._table: dict[str, dict[int, OrderInfo]] = {}
        self._changed = False

    def load(self) -> None:
        saved = self._file.load()
        if saved is not None:
            self._table = {
                key: {queue_id: info for queue_id, info in queues.items() if info.places}
                for key, queues in saved.table.items()
            }

    def get(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        return self._table.get(f"{topic}@{group}", {}).get(queue_id)

    def blocked_ms(self, topic: str, group: str, queue_id: int, attempt_id: str | None) -> int:
        """How long a queue gives nothing yet; 0 when it does."""
        info = self.get(topic, group, queue_id)
        if info is None or (info.attempt_id is not None and info.attempt_id == attempt_id):
            return 0
        return max(0, info.free_ms() - self._clock.now_ms())

    def give(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offsets: list[int],
        pop_ms: int,
        invisible_ms: int,
        attempt: str | None,
    ) -> list[OrderCount]:
        """Note a batch that is given; how often its messages were given before."""
        queues = self._table.setdefault(f"{topic}@{group}", {})
        before = queues.get(queue_id)
        places = [offsets[0], *(offset - offsets[0] for offset in offsets[1:])]
        info = OrderInfo(pop_ms, invisible_ms, places, used_ms=self._clock.now_ms(), attempt_id=attempt)
        if before is not None:
            info.counts = _counts(before, info)
        queues[queue_id] = info
        self._changed = True
        counts = info.counts or {}
        told: list[OrderCount] = [(QueueOffset(offset), count) for offset, count in counts.items()]
        # Clients before 5.1 know only one count for the whole queue.
        told.append((None, min(counts.values()) if len(counts) == len(offsets) else 0))
        return told

    def ack(self, topic: str, group: str, queue_id: int, offset: int, pop_ms: int) -> int | None:
        """Acknowledge one message; the group's next offset, None when this is not what was popped last."""
        info = self._held(topic, group, queue_id, offset, pop_ms)
        if info is None:
            return None
        info.acked |= 1 << info.offsets.index(offset)
        self._changed = True
        return info.next_offset

    def change(self, topic: str, group: str, queue_id: int, offset: int, pop_ms: int, visible_ms: int) -> bool:
        """Let a message be visible at another time; False when this is not what was popped last."""
        info = self._held(topic, group, queue_id, offset, pop_ms)
        if info is None:
            return False
        visible = info.visible_ms or {}
        visible[offset] = visible_ms
        info.visible_ms = visible
        self._changed = True
        return True

    def _held(self, topic: str, group: str, queue_id: int, offset: int, pop_ms: int) -> OrderInfo | None:
        info = self.get(topic, group, queue_id)
        if info is None or info.pop_time != pop_ms or offset not in info.offsets:
            log.info(
                "offset %d of %s queue %d is not what %s popped in order at %d", offset, topic, queue_id, group, pop_ms
            )
            return None
        return info

    def release(self, topic: str, group: str, queue_id: int) -> None:
        """The queue begins somewhere else: nothing of it is held any more."""
        if self._table.get(f"{topic}@{group}", {}).pop(queue_id, None) is not None:
            self._changed = True

    def clean(self, queue_count: Callable[[str, str], int]) -> None:
        """Drop what nobody used for a day, and queues that are no more; `queue_count` is asked by topic and group."""
        oldest_ms = self._clock.now_ms() - FORGET_AFTER_MS
        kept: dict[str, dict[int, OrderInfo]] = {}
        for key, queues in self._table.items():
            topic, _, group = key.partition("@")
            limit = queue_count(topic, group)
            left = {number: info for number, info in queues.items() if number < limit and info.used_ms >= oldest_ms}
            if left:
                kept[key] = left
        if kept != self._table:
            self._table, self._changed = kept, True

    def take_changes(self) -> bytes | None:
        if not self._changed:
            return None
        self._changed = False
        return self._file.encode(OrderInfoTable(table=self._table))

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except StoreError:
            self._changed = True  # or the next save would think that there is nothing to do
            raise


def _counts(before: OrderInfo, now: OrderInfo) -> dict[int, int]:
    counts = before.counts or {}
    if before.attempt_id is not None and before.attempt_id == now.attempt_id:
        return counts
    given = set(before.offsets)
    return {offset: counts.get(offset, 0) + 1 for offset in now.offsets if offset in given}
