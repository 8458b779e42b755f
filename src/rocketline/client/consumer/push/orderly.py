"""Delivery in order: one call at a time per queue, batch after batch by offset, up to `concurrency` queues at once.

A queue that has messages gets a turn: its handler is called again and again until nothing is left, the lock on the
queue is not valid any more, or the turn has lasted 60 s; other queues that wait for a worker then come first. What a
call ends with:

* it returns: the messages leave their buffer and progress moves behind them
* it raises: nothing of this queue is delivered until the same messages come again, a second later or as SuspendQueue
  says, with `reconsume_times` one higher. Messages that failed `max_reconsume_times` are sent to the group's retry
  topic, from where the broker puts them among the dead letters; by default that never happens
* a message whose body cannot be inflated would fail for ever: it goes to the dead letters at once
* with `auto_commit` off, returning only hands out what follows: progress moves when the handler returns
  OrderedResult.COMMIT, and a Rollback hands out again everything since

Messages in the handler's hands stay in the buffer, marked as taken, until they are committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import takewhile

from rocketline.client.consumer.push.delivery import Delivery, GiveBack, Handling, Source, batch_kind
from rocketline.client.consumer.push.handlers import NEVER_AGAIN, NotDone, OrderedResult, Rollback, SuspendQueue
from rocketline.client.consumer.push.pull_loop import PullLoop
from rocketline.client.consumer_info import ProcessQueueInfo
from rocketline.errors import ConfigError, UnreadableBody
from rocketline.message import ConsumerOffset, MessageQueue, MessageView

log = logging.getLogger(__name__)

MIN_PAUSE_S, MAX_PAUSE_S = 0.01, 30.0
"""Pauses asked for are brought between these, as in Apache's client."""

SendOn = Callable[[MessageView], Awaitable[bool]]


class _Queue:
    """What delivery knows of one pull loop."""

    __slots__ = ("is_waiting", "taken")

    def __init__(self) -> None:
        self.taken: list[MessageView] = []
        """Handed out and not committed, lowest offset first: the first ones of the loop's buffer."""
        self.is_waiting = False
        """A turn is due, running or put off: new messages need no other."""


@dataclass(frozen=True)
class Ordering:
    """How a push consumer delivers in order."""

    suspend_s: float = 1.0
    """How long a queue waits after its handler has failed, until it gets the same message again."""
    auto_commit: bool = True
    """False: the handler says when to commit, see OrderedResult and Rollback."""

    def __post_init__(self) -> None:
        if self.suspend_s <= 0:
            raise ConfigError(f"suspend_s {self.suspend_s}: a time above 0 is needed")


class OrderlyDelivery(Delivery):
    """Turns of queues."""

    def __init__(
        self,
        handling: Handling,
        progress: Callable[[Source, ConsumerOffset], None],
        send_on: SendOn,
        dead_letters: GiveBack | None,
        ordering: Ordering,
        *,
        holds: Callable[[MessageQueue], bool],
        max_reconsume_times: int,
        turn_s: float,
    ) -> None:
        """`holds` tells whether a queue may be consumed now, `send_on` takes messages that failed too often, and
        `dead_letters` those that nobody can read; without it they are left behind."""
        super().__init__(handling, progress)
        self._holds = holds
        self._send_on = send_on
        self._dead_letters = dead_letters
        self._max_reconsume_times = max_reconsume_times
        self._suspend_s = ordering.suspend_s
        self._turn_s = turn_s
        self._auto_commit = ordering.auto_commit
        self._queues: dict[PullLoop, _Queue] = {}
        self._ready: asyncio.Queue[PullLoop] = asyncio.Queue()
        self._running: dict[MessageQueue, PullLoop] = {}
        self._after: dict[MessageQueue, PullLoop] = {}
        self._given_up: set[MessageQueue] = set()

    def submit(self, source: PullLoop, messages: list[MessageView]) -> None:
        queue = self._queues.get(source)
        if queue is None:
            for gone in [loop for loop in self._queues if loop.dropped]:
                del self._queues[gone]
            queue = self._queues[source] = _Queue()
        if not queue.is_waiting:
            queue.is_waiting = True
            self._ready.put_nowait(source)

    async def expire(self, source: PullLoop, timeout_s: float) -> None:
        """A slow call delays its queue and nothing else: handing its message on would break the order."""

    def is_running(self, queue: MessageQueue) -> bool:
        """Whether a handler is, or may still be, at work on messages of a queue."""
        return queue in self._running or queue in self._given_up

    def describe(self, source: PullLoop, info: ProcessQueueInfo) -> None:
        """Taken messages are told apart, as Java's client does."""
        queue = self._queues.get(source)
        if queue is not None and queue.taken:
            info.transaction_msg_count = len(queue.taken)
            info.transaction_msg_min_offset = queue.taken[0].queue_offset
            info.transaction_msg_max_offset = queue.taken[-1].queue_offset
            info.cached_msg_count -= len(queue.taken)
            first = source.buffer.oldest(1, skip=len(queue.taken))
            info.cached_msg_min_offset = first[0].queue_offset if first else 0
            info.cached_msg_max_offset = info.cached_msg_max_offset if first else 0

    def _give_up(self) -> None:
        # A function that runs in a thread goes on, whatever happens to the task that waits for it.
        self._given_up = set(self._running)

    async def _work(self) -> None:
        while (source := await self._next_of(self._ready)) is not None:
            if source.leaving or self._stopping:
                continue
            if source.queue in self._running:
                # Lost and taken again while a call was running: the queue has a new loop, and still one call at a time.
                self._after[source.queue] = source
                continue
            self._begin(source)
            try:
                await self._take_turn(source)
            finally:
                self._end(source)

    async def _take_turn(self, source: PullLoop) -> None:
        queue = self._queues[source]
        self._running[source.queue] = source
        pause_s: float | None = self._suspend_s
        try:
            pause_s = await self._turn(source, queue)
        except Exception:
            log.exception("group %s: delivery from %s failed", self._group, source.queue)
            queue.taken = []
        finally:
            del self._running[source.queue]
            if (waiting := self._after.pop(source.queue, None)) is not None:
                self._ready.put_nowait(waiting)
        if pause_s is not None:
            self._tasks.start(self._later(source, pause_s), f"{self._group} next turn")

    async def _later(self, source: PullLoop, pause_s: float) -> None:
        await asyncio.sleep(min(max(pause_s, MIN_PAUSE_S), MAX_PAUSE_S))
        self._ready.put_nowait(source)

    async def _turn(self, source: PullLoop, queue: _Queue) -> float | None:
        """Call after call; returns the pause before the next turn, None when new messages have to ask for one."""
        end = self._clock.monotonic() + self._turn_s
        while not (source.leaving or self._stopping) and self._holds(source.queue):
            messages = self._next(source, queue)
            if not messages:
                queue.is_waiting = False
                return None
            if self._clock.monotonic() > end:
                return MIN_PAUSE_S
            queue.taken += messages
            pause_s = await self._deliver(source, queue, messages)
            if pause_s is not None:
                return pause_s
        return None

    def _next(self, source: PullLoop, queue: _Queue) -> list[MessageView]:
        messages = source.buffer.oldest(self._batch_size, skip=len(queue.taken))
        if len(messages) > 1:
            kind = batch_kind(messages[0])
            return list(takewhile(lambda message: batch_kind(message) == kind, messages))
        return messages

    async def _deliver(self, source: PullLoop, queue: _Queue, messages: list[MessageView]) -> float | None:
        """One call and what follows from it; returns how long the queue has to pause, None for not at all."""
        outcome = await self._run(messages, source.queue)
        if source.dropped:
            log.info("%s was lost while %d of its messages ran: they will be delivered again", source.queue,
                     len(messages))  # fmt: skip
            return None
        if isinstance(outcome, NotDone):
            source.leaving = True  # nobody takes messages any more
            return None
        if not self._auto_commit and not isinstance(outcome, Exception | OrderedResult | None):
            outcome = TypeError(f"the handler returned {outcome!r}: None or OrderedResult.COMMIT expected")
        if isinstance(outcome, Exception):
            self._observer.stats.failed(source.queue.topic, len(messages))
            return await self._failed(source, queue, messages, outcome)
        self._observer.stats.succeeded(source.queue.topic, len(messages))
        if outcome is not None and outcome is not OrderedResult.COMMIT:
            self._tell_of_result(messages[0].topic, outcome)
        if self._auto_commit or outcome is OrderedResult.COMMIT:
            self._finish(source, queue.taken)
            queue.taken = []
        return None

    async def _failed(
        self, source: PullLoop, queue: _Queue, messages: list[MessageView], error: Exception
    ) -> float | None:
        ids = ", ".join(message.message_id for message in messages)
        known = isinstance(error, SuspendQueue)
        pause_s = error.seconds if isinstance(error, SuspendQueue) and error.seconds is not None else self._suspend_s
        log.log(logging.INFO if known else logging.WARNING, "group %s: %s pauses for %g s at %s: %s", self._group,
                source.queue, pause_s, ids, error,
                exc_info=None if known or isinstance(error, UnreadableBody) else error)  # fmt: skip
        if isinstance(error, Rollback) and not self._auto_commit:
            queue.taken = []
            return pause_s
        del queue.taken[-len(messages) :]
        settled = [message for message in messages if await self._settle(source, message)]
        if settled:
            self._finish(source, settled)
        return pause_s if len(settled) < len(messages) else None

    async def _settle(self, source: PullLoop, message: MessageView) -> bool:
        """Whether a message that failed is off our hands; if not, it comes again."""
        if message.body_problem is not None:
            return self._dead_letters is None or await self._dead_letters(message, source.queue, NEVER_AGAIN)
        if message.reconsume_times >= self._max_reconsume_times and await self._send_on(message):
            return True
        message.reconsume_times += 1
        return False
