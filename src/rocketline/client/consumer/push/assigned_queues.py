"""The queues a consumer owns at the moment, each with its pull loop.

Adding, dropping and restarting a queue are the only ways the set changes, and there are never two loops for one queue.

* Taken: when the member that had the queue before has let go of it; only then the committed offset is asked for.
* Given away: pulling stops, messages that no handler has begun with stay behind, and the handlers at work end and count.
  Then the progress is committed. Until the broker has it, we say that we hold the queue. A round waits half a second for
  that. Handlers that take longer than `hand_over_s` are not waited for; their messages come again elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rocketline.client.consumer.group.hand_over import FormerOwner
from rocketline.client.consumer.group.subscription import Subscription
from rocketline.client.consumer.push.pull_loop import PullLoop, QueueReading
from rocketline.client.consumer_info import ProcessQueueInfo
from rocketline.client.tasks import OwnedTasks, cancel_and_wait
from rocketline.errors import RocketlineError
from rocketline.message import ConsumerOffset, MessageQueue, MessageView, QueueOffset

log = logging.getLogger(__name__)


class Receiver(Protocol):
    """Gets the pulled messages."""

    def submit(self, loop: PullLoop, messages: list[MessageView]) -> None: ...

    async def finish_running(self, loop: PullLoop) -> None:
        """Hand out no more messages of a queue; returns when those in hand are done with and counted."""


class AssignedQueues:
    """Pull loops by queue; the rebalancer adds and drops them, the loops report here."""

    def __init__(
        self,
        reading: QueueReading,
        delivery: Receiver,
        *,
        commits_with_pulls: bool,
        wake: Callable[[], None],
        on_change: Callable[[str], None],
    ) -> None:
        """`wake` asks for a rebalance, which starts a queue again whose offset was changed; `on_change` is called with
        topics whose assignment has changed."""
        self._reading = reading
        self._session = reading.session
        self._group = reading.group
        self._subscriptions = reading.subscriptions
        self._offsets = reading.offsets
        self._delivery = delivery
        self._commits_with_pulls = commits_with_pulls
        self._wake = wake
        self._on_change = on_change
        self._moving: set[MessageQueue] = set()
        self._leaving: dict[MessageQueue, PullLoop] = {}
        self._loops: dict[MessageQueue, PullLoop] = {}
        self._running: dict[MessageQueue, asyncio.Task[None]] = {}
        self._tasks = OwnedTasks()
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def topics(self) -> set[str]:
        return set(self._subscriptions)

    def loops(self) -> list[PullLoop]:
        return list(self._loops.values())

    def held(self) -> list[PullLoop]:
        """Those of owned queues, and of queues whose last progress is not committed yet: nobody else may begin."""
        return [*self._loops.values(), *self._leaving.values()]

    def owned(self) -> set[MessageQueue]:
        return set(self._loops)

    def start(self) -> None:
        """Called once, before the first queue is added."""

    async def release(self) -> None:
        """Called at the end: no handler runs any more, and all progress is committed."""

    def describe(self, loop: PullLoop, info: ProcessQueueInfo) -> None:
        """Add facts about a queue that only this table knows."""

    def committable(self) -> set[MessageQueue]:
        """Queues whose progress is ours to commit."""
        return self.owned()

    async def commit_progress(self) -> None:
        await self._offsets.persist(self.committable())

    async def add_queue(self, queue: MessageQueue, former: FormerOwner | None) -> bool:
        if queue in self._moving or queue in self._leaving:
            return False  # ours again before its last handlers have ended
        if queue.topic not in self._subscriptions or queue in self._loops:
            return True
        if former is not None and not await former.let_go(queue):
            return False
        return await self._start_reading(queue)

    async def _start_reading(self, queue: MessageQueue) -> bool:
        self._offsets.forget(queue)  # what was known of an earlier ownership is stale
        offset = await self._start_offset(queue)
        subscription = self._subscriptions.get(queue.topic)
        if queue in self._loops or queue in self._moving or subscription is None:
            return queue not in self._moving
        loop = self._loops[queue] = self._new_loop(queue, subscription, offset)
        self._running[queue] = self._tasks.start(loop.run(), f"pull {queue}")
        return True

    def _new_loop(self, queue: MessageQueue, subscription: Subscription, offset: int) -> PullLoop:
        return PullLoop(self._reading, queue, subscription, self, offset, gate=self.gate)

    async def _start_offset(self, queue: MessageQueue) -> ConsumerOffset:
        return await self._reading.start_from.offset(self._session, self._offsets, queue, store=True)

    def stalled(self) -> set[MessageQueue]:
        """Owned queues nobody reads any more: their loop has ended or hangs. A paused consumer reads nothing."""
        if not self.gate.is_set():
            return set()
        return {queue for queue, loop in self._loops.items() if self._running[queue].done() or loop.is_stalled}

    async def before_drop(self, queues: Sequence[MessageQueue]) -> None:
        """Nothing to do here."""

    async def after_add(self, queues: Sequence[MessageQueue]) -> None:
        """Nothing to do here."""

    def uncommitted(self) -> set[MessageQueue]:
        """Queues whose progress has still to be committed: those owned, and those whose end was cut short."""
        return self.owned() | set(self._leaving)

    async def drop_queue(self, queue: MessageQueue) -> None:
        loop, task = self._loops.pop(queue, None), self._running.pop(queue, None)
        if loop is None:
            return
        loop.leaving = True
        self._leaving[queue] = loop
        if task is not None:
            await cancel_and_wait(task)
        letting_go = self._tasks.start(self._let_go(queue, loop), f"let go of {queue}")
        await asyncio.wait([letting_go], timeout=self._session.timing.unlock_wait_s)

    async def _let_go(self, queue: MessageQueue, loop: PullLoop) -> None:
        await self._finish_running(loop)
        loop.drop()
        if self._leaving.get(queue) is loop:  # else it was taken from us meanwhile
            try:
                await self._offsets.persist([queue], wait=True)
            except Exception:  # of an offset store of the user's
                log.exception("the progress of group %s in %s was not committed", self._group, queue)
            self._offsets.forget(queue)
            await self._released(queue)
            self._leaving.pop(queue, None)

    async def _finish_running(self, loop: PullLoop) -> None:
        limit_s = self._session.timing.hand_over_s
        try:
            async with asyncio.timeout(limit_s):
                await self._delivery.finish_running(loop)
        except TimeoutError:
            log.warning("group %s gives %s away while its messages are still being handled after %g s: they will be "
                        "delivered again", self._group, loop.queue, limit_s)  # fmt: skip

    async def _released(self, queue: MessageQueue) -> None:
        """Called when the last progress of a queue that goes elsewhere is committed."""

    async def restart_at(self, queue: MessageQueue, offset: ConsumerOffset) -> None:
        """Forget what is held of a queue and read it from another offset on, also a lower one."""
        self._moving.add(queue)  # a running rebalance must not start it again at the old offset
        try:
            await self._end_loop(queue)
            self._offsets.update(queue, offset, may_decrease=True)
            await self._offsets.persist([queue], wait=True)
        finally:
            self._moving.discard(queue)
        self._wake()

    async def _end_loop(self, queue: MessageQueue) -> None:
        loop = self._loops.pop(queue, None)
        task = self._running.pop(queue, None)
        for some in (loop, self._leaving.pop(queue, None)):
            if some is not None:
                some.drop()
        if task is not None and task is not asyncio.current_task():
            await cancel_and_wait(task)

    async def stop_pulling(self) -> None:
        """No new messages; what is held stays, so that handlers still running can finish it."""
        await self._tasks.cancel()

    def resubscribe(self, topic: str) -> None:
        """Let running loops use the topic's new subscription."""
        for queue, loop in self._loops.items():
            if queue.topic == topic:
                loop.subscription = self._subscriptions.get(topic, loop.subscription)

    def share_limits(self) -> None:
        """Divide the limits of a topic among the queues owned now."""
        limits = self._reading.settings.limits(max(1, len(self._loops)))
        for loop in self._loops.values():
            loop.limits = limits

    def positions(self, topic: str) -> dict[MessageQueue, ConsumerOffset]:
        """Progress by queue of one topic."""
        known = ((queue, self._offsets.get(queue)) for queue in self._loops if queue.topic == topic)
        return {queue: offset for queue, offset in known if offset is not None}

    def assignment_changed(self, topic: str) -> None:
        self._on_change(topic)

    def after_round(self, problems: Mapping[str, RocketlineError]) -> None:
        """Nothing to do here: the log has them."""

    def pulled(self, loop: PullLoop, messages: list[MessageView]) -> None:
        self._delivery.submit(loop, messages)

    def advanced(self, loop: PullLoop, offset: ConsumerOffset) -> None:
        if self._loops.get(loop.queue) is loop:
            self._offsets.update(loop.queue, offset)

    def commit_offset(self, queue: MessageQueue) -> ConsumerOffset | None:
        return self._offsets.get(queue) if self._commits_with_pulls else None

    def full(self) -> str | None:
        return None

    def refused(self, loop: PullLoop) -> None:
        """Nothing to do here: the log has it."""

    async def offset_moved(self, loop: PullLoop, offset: QueueOffset) -> None:
        if self._loops.get(loop.queue) is loop:
            await self.restart_at(loop.queue, ConsumerOffset(offset))
