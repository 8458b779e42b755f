"""The queues of a consumer that keeps order: each is read only while the broker's lock on it is ours.

* Taken: locked first, then the committed offset is asked for, then read. The former owner unlocks after its last
  commit, so nothing is read twice or passed over.
* Kept: all locks are renewed every 20 s, every second after a renewal that failed. A lock that the broker gave to
  somebody else, or that could not be renewed for 30 s, ends the queue here. Its progress is not committed any more,
  because another owner may have come further. The next rounds try to take it again, from the committed offset, or
  from where we were if that is further and not long ago.
* Given away: reading stops, the running call ends and counts, progress is committed, and only then the lock goes back.
  A rebalance waits half a second for that; a longer call goes on under a lock that is still renewed.

Apache's client unlocks by force 20 s after the last renewal even while the call runs; here a call overlaps with the
next owner's only if it outlives a lock that could not be renewed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rocketline.client.consumer.group.hand_over import FormerOwner
from rocketline.client.consumer.push.assigned_queues import AssignedQueues
from rocketline.client.consumer.push.held_locks import HeldLocks
from rocketline.client.consumer.push.orderly import OrderlyDelivery
from rocketline.client.consumer.push.pull_loop import PullLoop, QueueReading
from rocketline.client.consumer_info import ProcessQueueInfo
from rocketline.client.tasks import OwnedTasks
from rocketline.message import ConsumerOffset, MessageQueue

log = logging.getLogger(__name__)

REMEMBERED_S = 120.0
"""How long we know where we were in a queue whose lock lapsed: over a short outage, not over what an operator may have
set since."""


class LockedQueues(AssignedQueues):
    """Pull loops by queue, each under a lock."""

    def __init__(
        self,
        reading: QueueReading,
        delivery: OrderlyDelivery,
        locks: HeldLocks,
        *,
        wake: Callable[[], None],
        on_change: Callable[[str], None],
    ) -> None:
        super().__init__(reading, delivery, commits_with_pulls=True, wake=wake, on_change=on_change)
        self._orderly = delivery
        self._locks = locks
        self._taking: set[MessageQueue] = set()
        self._reached: dict[MessageQueue, tuple[ConsumerOffset, float]] = {}
        self._keeper = OwnedTasks()

    def start(self) -> None:
        self._keeper.start(self._keep_locks(), f"locks of {self._group}")

    async def add_queue(self, queue: MessageQueue, former: FormerOwner | None) -> bool:
        if queue in self._leaving:
            return False  # ours again before its last call has ended
        if queue in self._loops:
            return True
        self._taking.add(queue)
        try:
            if not await self._locks.take(queue):
                self._reached.pop(queue, None)
                log.info("group %s waits for %s: another member has it locked", self._group, queue)
                return False
            return await super().add_queue(queue, None)  # the lock says that nobody has it
        finally:
            self._taking.discard(queue)

    async def _start_offset(self, queue: MessageQueue) -> ConsumerOffset:
        committed = await super()._start_offset(queue)
        reached, until = self._reached.pop(queue, (committed, 0.0))
        return max(committed, reached) if self._session.clock.monotonic() < until else committed

    async def _finish_running(self, loop: PullLoop) -> None:
        await self._orderly.finish_running(loop)  # as long as it takes: the lock stays ours

    async def _released(self, queue: MessageQueue) -> None:
        await self._locks.give_back([queue])

    async def _keep_locks(self) -> None:
        timing = self._session.timing
        pause_s = timing.lock_s
        while True:
            await asyncio.sleep(pause_s)
            try:
                complete = await self._renew()
            except Exception:
                log.exception("renewing the locks of group %s failed", self._group)
                complete = False
            pause_s = timing.lock_s if complete else min(timing.lock_retry_s, timing.lock_s)

    async def _renew(self) -> bool:
        held = self.owned() | set(self._leaving)
        # Before asking: one that lapsed may have had another owner in between, and the answer would not tell.
        lapsed = {queue for queue in held if not self._locks.is_valid(queue)}
        until = self._session.clock.monotonic() + REMEMBERED_S
        for queue in lapsed:
            if (offset := self._offsets.get(queue)) is not None:
                self._reached[queue] = offset, until
        await self._lose(lapsed, "could not be renewed in time")
        lost, complete = await self._locks.renew(held - lapsed)
        await self._lose(lost, "was given to another member")
        await self._locks.give_back([queue for queue in self._locks if not self._is_needed(queue)])
        return complete

    def _is_needed(self, queue: MessageQueue) -> bool:
        in_use = (self._loops, self._leaving, self._taking, self._moving)
        return any(queue in some for some in in_use) or self._orderly.is_running(queue)

    async def _lose(self, queues: set[MessageQueue], why: str) -> None:
        for queue in sorted(queues):
            log.warning("group %s stops consuming %s: its lock %s", self._group, queue, why)
            self._locks.forget(queue)
            await self._end_loop(queue)
            self._offsets.forget(queue)
        if queues:
            self._wake()

    def describe(self, loop: PullLoop, info: ProcessQueueInfo) -> None:
        info.locked = self._locks.is_valid(loop.queue)
        info.last_lock_timestamp = self._locks.granted_ms.get(loop.queue, 0)

    def committable(self) -> set[MessageQueue]:
        return {queue for queue in self.owned() if self._locks.is_valid(queue)}

    def commit_offset(self, queue: MessageQueue) -> ConsumerOffset | None:
        return super().commit_offset(queue) if self._locks.is_valid(queue) else None

    def uncommitted(self) -> set[MessageQueue]:
        return {queue for queue in super().uncommitted() if self._locks.is_valid(queue)}

    async def release(self) -> None:
        """Give all locks back, except those under which a handler may still be at work: they expire."""
        await self._keeper.cancel()
        await self._locks.give_back([queue for queue in self._locks if not self._orderly.is_running(queue)])
