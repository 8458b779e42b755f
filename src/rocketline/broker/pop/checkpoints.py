"""Check points that are not in the revive log yet, and how far each group has popped each queue.

With enablePopBufferMerge a check point waits in memory: acknowledgements only set a bit there, and one that is
acknowledged as a whole is never written. It is written, with the bits it has, after ten seconds, three seconds before
its invisible time ends, or when the broker stops. Without it every check point is written at once and nothing waits
here.

A queue's consumer offset may only pass check points that are written or done with. Those of a queue therefore stand in
a line, and the offset moves when the head of the line is settled. Where the next pop reads is the end of the line. A
crash forgets the line: its messages are popped again, none is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from rocketline.broker.config import PopConfig
from rocketline.broker.pop.in_flight import InFlight
from rocketline.broker.pop.records import PopCheckpoint, PopKey, new_ack
from rocketline.broker.pop.revive_log import TAKES_NOTHING, ReviveLog
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.turns import take_turns
from rocketline.clock import Clock
from rocketline.errors import RequestRejected
from rocketline.store.message_store import AppendResult

log = logging.getLogger(__name__)

GUARD_MS = 1500
"""A check point that would have to be written within this time is not kept in memory at all."""
TRY_AGAIN_MS = 1000

QueueKey = tuple[str, str, int]
"""(topic, group, queue)"""


@dataclass(slots=True, eq=False)
class _Step:
    """A step of a queue's offset, and what has to be settled before it is made."""

    queue: QueueKey
    next_offset: int
    checkpoint: PopCheckpoint | None = None
    revive_queue_id: int = 0
    acked: int = 0
    all_acked: int = 0
    log_offset: int = 0
    """Where the log ends after its check point, once it is written."""
    is_settled: bool = False
    is_put_off: bool = False
    """It was refused once: that was reported."""


class PopCheckpoints:
    def __init__(
        self, config: PopConfig, revive_log: ReviveLog, offsets: ConsumerOffsets, clock: Clock, in_flight: InFlight
    ) -> None:
        self._config = config
        self._log = revive_log
        self._offsets = offsets
        self._clock = clock
        self._in_flight = in_flight
        self._lines: dict[QueueKey, deque[_Step]] = {}
        self._buffered: dict[PopKey, _Step] = {}
        self._due: list[tuple[int, int, _Step]] = []
        """(when to write, number, step); those settled in the meantime are passed over."""
        self._numbers = count()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Check points that are only in memory."""
        return len(self._buffered)

    @property
    def step_count(self) -> int:
        """Steps of offsets that wait for check points."""
        return sum(map(len, self._lines.values()))

    def position(self, topic: str, group: str, queue_id: int) -> int:
        """Where the next pop of a queue reads, if that is past the group's offset; else -1."""
        line = self._lines.get((topic, group, queue_id))
        return line[-1].next_offset if line else -1

    def add(self, checkpoint: PopCheckpoint, revive_queue_id: int, next_offset: int) -> None:
        """Keep a check point and let the queue go on behind it; RequestRejected when it cannot be kept."""
        queue = (checkpoint.topic, checkpoint.group, checkpoint.queue_id)
        line = self._lines.get(queue)
        if self._may_wait(checkpoint, line):
            self._buffer(_Step(queue, next_offset, checkpoint, revive_queue_id, all_acked=(1 << checkpoint.count) - 1))
        else:
            result = self._log.put_checkpoint(checkpoint, revive_queue_id)
            self._step(_Step(queue, next_offset, log_offset=result.next_log_offset, is_settled=True), line)
        self._in_flight.add(queue, checkpoint.count)

    def skip(self, topic: str, group: str, queue_id: int, next_offset: int) -> None:
        """Let a queue go on behind messages that nobody gets: they were filtered out, or are gone."""
        queue = (topic, group, queue_id)
        self._step(_Step(queue, next_offset, is_settled=True), self._lines.get(queue))

    def put_alone(self, checkpoint: PopCheckpoint, revive_queue_id: int) -> AppendResult:
        """Write a check point that moves no offset: its message was popped before."""
        result = self._log.put_checkpoint(checkpoint, revive_queue_id)
        self._in_flight.add((checkpoint.topic, checkpoint.group, checkpoint.queue_id), checkpoint.count)
        return result

    def ack(
        self, key: PopKey, offsets: list[int], revive_queue_id: int, revive_ms: int, *, batch: bool
    ) -> AppendResult | None:
        """Acknowledge messages of a check point; what was written for it, None when it only changed memory."""
        self._in_flight.remove((key.topic, key.group, key.queue_id), len(offsets), key.pop_ms)
        step = self._buffered.get(key)
        if step is None:
            return self._log.put_ack(new_ack(key, offsets, batch=batch), revive_queue_id, revive_ms)
        assert step.checkpoint is not None
        for offset in offsets:
            bit = step.checkpoint.bit_of(offset)
            if not bit:
                log.warning("%s acknowledges offset %d of %s queue %d, which it did not pop at %d", key.group, offset,
                            key.topic, key.queue_id, key.pop_ms)  # fmt: skip
            step.acked |= bit
        if step.acked == step.all_acked:
            del self._buffered[key]
            self._settle(step)
        return None

    def leave(self, queue: QueueKey) -> None:
        """The queue goes on somewhere else: what was popped is still looked after, but moves its offset no more."""
        self._lines.pop(queue, None)

    def forget(self, is_gone: Callable[[QueueKey], bool]) -> None:
        """Drop what waits for queues that are no more."""
        for queue in [queue for queue in self._lines if is_gone(queue)]:
            for step in self._lines.pop(queue):
                step.is_settled = True
                if step.checkpoint is not None:
                    self._buffered.pop(step.checkpoint.key, None)

    # In memory

    def _may_wait(self, checkpoint: PopCheckpoint, line: deque[_Step] | None) -> bool:
        config = self._config
        if not config.merges_in_memory or len(self._buffered) >= config.max_buffered:
            return False
        if line is not None and len(line) >= config.max_line:
            return False
        left_ms = checkpoint.revive_ms - self._clock.now_ms()
        return left_ms >= config.buffer_end_ms + GUARD_MS and checkpoint.key not in self._buffered

    def _buffer(self, step: _Step) -> None:
        checkpoint, config = step.checkpoint, self._config
        assert checkpoint is not None
        self._buffered[checkpoint.key] = step
        self._lines.setdefault(step.queue, deque()).append(step)
        self._write_at(
            min(checkpoint.pop_ms + config.buffer_stay_ms, checkpoint.revive_ms - config.buffer_end_ms), step
        )

    def _write_at(self, due_ms: int, step: _Step) -> None:
        heappush(self._due, (due_ms, next(self._numbers), step))
        self._wake.set()

    def _step(self, step: _Step, line: deque[_Step] | None) -> None:
        if line:
            line.append(step)
        else:
            self._commit(step)

    def _settle(self, step: _Step) -> None:
        step.is_settled = True
        line = self._lines.get(step.queue)
        last = None
        while line and line[0].is_settled:
            last = line.popleft()
        if last is not None:
            self._commit(last)
        if not line:
            self._lines.pop(step.queue, None)

    def _commit(self, step: _Step) -> None:
        topic, group, queue_id = step.queue
        self._offsets.commit("a pop", group, topic, queue_id, step.next_offset)
        self._offsets.save_after(step.log_offset)

    # To the revive log

    async def run(self) -> None:
        """Write for ever what has waited long enough."""
        await take_turns(self.turn, self._wake)

    def turn(self) -> int | None:
        """Write what is due; milliseconds until the next is, None when nothing waits."""
        due = self._due
        while due:
            due_ms, _, step = due[0]
            wait_ms = due_ms - self._clock.now_ms()
            if not step.is_settled and wait_ms > 0:
                return wait_ms
            if not step.is_settled and not self._write(step):
                return TRY_AGAIN_MS
            heappop(due)
        return None

    def write_all(self) -> None:
        """The broker stops: nothing may be only in memory."""
        for step in list(self._buffered.values()):
            if not self._write(step):
                return

    def _write(self, step: _Step) -> bool:
        """False when nothing can be written now. A check point that is refused for itself is put off: others are not."""
        checkpoint = step.checkpoint
        assert checkpoint is not None
        try:
            result = self._log.put_checkpoint(checkpoint, step.revive_queue_id, step.acked)
        except RequestRejected as error:
            if not step.is_put_off:
                log.error("a check point of %s stays in memory: %s", checkpoint.group, error.remark)
            step.is_put_off = True
            if error.code in TAKES_NOTHING:
                return False
            self._write_at(self._clock.now_ms() + TRY_AGAIN_MS, step)
            return True
        step.log_offset = result.next_log_offset
        self._buffered.pop(checkpoint.key, None)
        self._settle(step)
        return True
