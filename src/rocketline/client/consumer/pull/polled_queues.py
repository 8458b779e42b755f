"""The queues of a pull consumer: read ahead by their loops, taken from by `poll`.

What a loop has read waits in its buffer until it is polled, so the position of a queue is the first offset waiting, or
the loop's next when none is. One queue that fails or has nothing never keeps another from being read. Rules kept here:

* What `poll` returned counts as done when `poll` is called again, not before: `settle` then notes the positions, and
  only those are committed by themselves. A queue that goes to another member waits for that as it would for a handler.
* A new queue gives nothing before the listener was called, so that it can seek; one that is given away gives nothing
  any more while the listener is called, so that it can commit.
* All buffers together are bounded as well.
* A message whose body cannot be inflated is polled like any other, as it was stored; its `body_problem` says why.
* What brokers refuse for good (no rights, an expression with a mistake) is an exception of `poll`, not silence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from rocketline.client.consumer.group.offsets import OffsetStore
from rocketline.client.consumer.group.start_offset import StartFrom
from rocketline.client.consumer.group.subscription import Subscription
from rocketline.client.consumer.pull.listeners import QueuesListener, tell
from rocketline.client.consumer.push.assigned_queues import AssignedQueues
from rocketline.client.consumer.push.pull_loop import PullLoop, QueueReading, is_lasting
from rocketline.client.serializers import unreadable
from rocketline.client.session import ClientSession
from rocketline.errors import BrokerError, RocketlineError, RouteNotFound, TopicNotExist
from rocketline.message import ConsumerOffset, MessageQueue, MessageView, QueueOffset

log = logging.getLogger(__name__)


class SoughtStart(StartFrom):
    """Where queues begin: at what was sought before they could be read, else by the consumer's rule."""

    def __init__(self, rule: StartFrom) -> None:
        self.__dict__.update(rule.__dict__)
        self.stores = True
        """Whether an offset found by the rule is committed at once, for other members to find."""
        self.sought: dict[MessageQueue, int] = {}

    async def offset(
        self, session: ClientSession, offsets: OffsetStore, queue: MessageQueue, *, store: bool
    ) -> ConsumerOffset:
        found = 0
        if queue not in self.sought:
            found = await super().offset(session, offsets, queue, store=store and self.stores)
        return ConsumerOffset(self.sought.pop(queue, found))  # it may have been sought while we asked


class PolledQueues(AssignedQueues):
    """Pull loops by queue, and what has been polled of them."""

    def __init__(
        self,
        reading: QueueReading,
        *,
        auto_commit: bool,
        wake: Callable[[], None],
        on_change: Callable[[str], None],
    ) -> None:
        self.sought_start = SoughtStart(reading.start_from)
        reading = replace(reading, start_from=self.sought_start)
        super().__init__(reading, self, commits_with_pulls=False, wake=wake, on_change=on_change)
        self.allowed: frozenset[MessageQueue] | None = None
        """When set, nothing comes from other queues, even if they are still being read."""
        self.on_added: QueuesListener | None = None
        self.on_dropped: QueuesListener | None = None
        self.arrived = asyncio.Event()
        self._auto_commit = auto_commit
        self._max_messages = reading.settings.max_total_messages
        self._announced: set[MessageQueue] = set()
        self._paused: set[MessageQueue] = set()
        self._gates: dict[MessageQueue, asyncio.Event] = {}
        self._moved: set[MessageQueue] = set()
        self._polled: set[MessageQueue] = set()
        self._unsettled: list[asyncio.Event] = []
        self._open: list[PullLoop] | None = None
        self._turn = 0
        self._problems: Mapping[str, RocketlineError] = {}

    def _new_loop(self, queue: MessageQueue, subscription: Subscription, offset: int) -> PullLoop:
        gate = self._gates[queue] = asyncio.Event()
        if queue not in self._paused:
            gate.set()
        return PullLoop(self._reading, queue, subscription, self, offset, gate=gate, subscribes=True)

    def stalled(self) -> set[MessageQueue]:
        return super().stalled() - self._paused

    async def after_add(self, queues: Sequence[MessageQueue]) -> None:
        await tell(self.on_added, list(queues))
        self._announced.update(queue for queue in queues if queue in self._loops)
        self.changed()

    async def before_drop(self, queues: Sequence[MessageQueue]) -> None:
        self._announced.difference_update(queues)
        self.changed()
        await tell(self.on_dropped, list(queues))

    async def drop_queue(self, queue: MessageQueue) -> None:
        for known in (self._announced, self._paused):
            known.discard(queue)
        self._gates.pop(queue, None)
        self.sought_start.sought.pop(queue, None)
        await super().drop_queue(queue)
        self.changed()

    async def finish_running(self, loop: PullLoop) -> None:
        """Returns when what was polled of a queue is done with: when `poll` is called again. Queues that were assigned
        go to nobody, and without automatic commits there is nothing to wait for."""
        loop.leaving = True
        if self._auto_commit and self.allowed is None and loop.queue in self._polled:
            settled = asyncio.Event()
            self._unsettled.append(settled)
            await settled.wait()

    async def _released(self, queue: MessageQueue) -> None:
        self._moved.discard(queue)
        self._polled.discard(queue)

    def changed(self) -> None:
        """Other queues may be polled than before."""
        self._open = None
        self.arrived.set()

    def take(self, count: int) -> list[MessageView]:
        """Up to `count` messages that wait here, queues in turn so that a full one does not hide the others."""
        self.arrived.clear()
        taken: list[MessageView] = []
        loops = self._open
        if loops is None:
            loops = self._open = [loop for queue, loop in self._loops.items() if self._may_give(queue)]
        self._turn += 1
        for step in range(len(loops)):
            loop = loops[(self._turn + step) % len(loops)]
            if messages := loop.buffer.oldest(count - len(taken)):
                loop.finish(messages)
                self._polled.add(loop.queue)
                taken += messages
                if len(taken) == count:
                    break
        return taken

    def _may_give(self, queue: MessageQueue) -> bool:
        allowed = self.allowed is None or queue in self.allowed
        return allowed and queue in self._announced and queue not in self._paused

    def settle(self) -> None:
        """Everything polled so far is done with; with automatic commits it is noted as progress."""
        for queue in self._moved | self._polled if self._auto_commit else ():
            position = self.position(queue)
            if position is not None:
                self._offsets.update(queue, ConsumerOffset(position), may_decrease=True)
        self._moved.clear()
        self._polled.clear()
        for settled in self._unsettled:
            settled.set()
        self._unsettled.clear()

    def position(self, queue: MessageQueue) -> QueueOffset | None:
        """The offset of the next message that `take` returns from a queue; None when it is not known yet."""
        loop = self._loops.get(queue) or self._leaving.get(queue)
        if loop is None or loop.dropped or (self.allowed is not None and queue not in self.allowed):
            return None
        first = loop.buffer.min_offset
        return QueueOffset(first) if first is not None else loop.next_offset

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read a queue from another offset on; one that is not read yet begins there."""
        loop, task = self._loops.get(queue), self._running.get(queue)
        if loop is None or task is None:
            self.sought_start.sought[queue] = offset
            return
        task.cancel()  # its pull may be held by the broker for long; nothing is taken from it any more
        loop.jump(offset)
        self._moved.add(queue)
        self._running[queue] = self._tasks.start(_run_after(task, loop), f"pull {queue}")

    def select_anew(self, topic: str) -> None:
        """The topic's expression is another one now: what was read ahead with the old one is read again."""
        self.resubscribe(topic)
        for queue in [queue for queue in self._loops if queue.topic == topic]:
            position = self.position(queue)
            if position is not None:
                self.seek(queue, position)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self._paused.add(queue)
            if (gate := self._gates.get(queue)) is not None:
                gate.clear()
        self.changed()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self._paused.discard(queue)
            if (gate := self._gates.get(queue)) is not None:
                gate.set()
        self.changed()

    @property
    def paused(self) -> set[MessageQueue]:
        return set(self._paused)

    def submit(self, loop: PullLoop, messages: list[MessageView]) -> None:
        for message in messages:
            if message.body_problem is not None:
                log.error("group %s: %s; it is polled as it was stored", self._reading.group, unreadable(message))
        self.arrived.set()

    def advanced(self, loop: PullLoop, offset: ConsumerOffset) -> None:
        self._moved.add(loop.queue)

    def refused(self, loop: PullLoop) -> None:
        self.arrived.set()

    def after_round(self, problems: Mapping[str, RocketlineError]) -> None:
        self._problems = dict(problems)
        self.arrived.set()

    def take_refusal(self) -> BrokerError | None:
        """Why brokers give nothing of a topic, if they refuse all of its queues that may be polled.

        Told once for each time that they were asked: queues are asked for again every second.
        """
        loops: dict[str, list[PullLoop]] = {topic: [] for topic in self._problems}
        for queue, loop in self._loops.items():
            if self._may_give(queue):
                loops.setdefault(queue.topic, []).append(loop)
        for topic, some in loops.items():
            problems: list[RocketlineError | None] = [loop.refusal for loop in some] or [self._problems[topic]]
            refusals = [problem for problem in problems if problem is not None and is_lasting(problem)]
            if len(refusals) == len(problems):
                for loop in some:
                    loop.refusal = None
                self._problems = {other: problem for other, problem in self._problems.items() if other != topic}
                return refusals[0]
        return None

    def absence(self) -> RouteNotFound | None:
        """Why nothing is read at all, if queues were assigned and none of their topics exists. A subscriber may be there
        before its topics are."""
        absent = [problem for problem in self._problems.values() if isinstance(problem, RouteNotFound)]
        is_all = self.allowed is not None and not self._loops and len(absent) == len(self.topics)
        return absent[0] if is_all and isinstance(absent[0].__cause__, TopicNotExist) else None

    def full(self) -> str | None:
        held = sum([len(loop.buffer) for loop in self._loops.values()])
        return (
            f"{held} messages of all queues held, the limit is {self._max_messages}"
            if held > self._max_messages
            else None
        )

    async def offset_moved(self, loop: PullLoop, offset: QueueOffset) -> None:
        if offset > loop.next_offset:
            loop.next_offset = offset  # the oldest message is a later one; what is held is still good
        else:
            loop.jump(offset)
        self._moved.add(loop.queue)


async def _run_after(ended: asyncio.Task[None], loop: PullLoop) -> None:
    await asyncio.wait([ended])
    await loop.run()
