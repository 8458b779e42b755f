"""Delivery of messages to handlers, a bounded number at a time; concurrent delivery, in no particular order.

A handler that returns has consumed its messages, whatever it returns; one that raises gets them again later, or of a
list those that its RetryLater names. Then:

* queue dropped meanwhile: the outcome counts for nothing, the queue's new owner delivers again. A queue that is about to
  be dropped is given time first: nothing more of it is begun, what runs still counts
* success: the messages leave their buffer and progress moves to the lowest one still there
* failure, clustering: each message is handed back to the broker; one that nobody takes is tried again here after 5 s
  and holds progress back until then
* failure, broadcasting: logged and left behind, as RocketMQ does: there is no retry topic to return to

No handler ever sees a message whose body cannot be inflated: that message has failed.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Protocol, TypeVar

from rocketline.client.consumer.group.consume_observer import ConsumeObserver
from rocketline.client.consumer.push.handlers import Handler, NotDone, RetryLater, UnreadableMessages
from rocketline.client.consumer.push.loop_pulse import LoopPulse
from rocketline.client.consumer.push.pull_loop import CONSUME_START_TIME, PullLoop
from rocketline.client.consumer_info import ProcessQueueInfo
from rocketline.client.serializers import unreadable
from rocketline.client.tasks import OwnedTasks
from rocketline.clock import Clock
from rocketline.errors import UnreadableBody
from rocketline.message import RETRY_PREFIX, ConsumerOffset, MessageQueue, MessageView

log = logging.getLogger(__name__)

EXPIRED_DELAY_LEVEL = 3
EXPIRED_PER_QUEUE = 16

BLOCKED_S = 3.0
"""A handler that keeps the event loop this long is warned about."""

GiveBack = Callable[[MessageView, MessageQueue, int], Awaitable[bool]]
T = TypeVar("T")

MAX_CONCURRENCY = 1000


class Source(Protocol):
    """The pull or pop loop that messages came from; it is told their outcome."""

    @property
    def queue(self) -> MessageQueue: ...

    @property
    def leaving(self) -> bool:
        """Whether no more of its messages are handed out."""

    @property
    def dropped(self) -> bool:
        """Whether the outcome of its messages no longer counts."""

    def finish(self, messages: list[MessageView]) -> ConsumerOffset | None:
        """Messages are done with; returns what may be committed now."""


Batch = tuple[Source, list[MessageView]]


@dataclass(frozen=True)
class Handling:
    """What the handlers of one consumer are run with."""

    group: str
    handler_of: Callable[[str], Handler | None]
    """The handler of a topic."""
    clock: Clock
    observer: ConsumeObserver
    concurrency: int
    batch_size: int


class Delivery(ABC):
    """Workers that run handlers; `start`, `submit` as often as needed, `stop`."""

    def __init__(self, handling: Handling, progress: Callable[[Source, ConsumerOffset], None]) -> None:
        """`progress` is called with what may be committed."""
        self._group = handling.group
        self._handler_of = handling.handler_of
        self._progress = progress
        self._clock = handling.clock
        self._concurrency = handling.concurrency
        self._batch_size = handling.batch_size
        # Threads are made as they are needed; how many are, the workers decide.
        self._executor = ThreadPoolExecutor(MAX_CONCURRENCY, thread_name_prefix=f"rocketline-{handling.group}")
        self._tasks = OwnedTasks()
        self._workers: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        self._busy = 0
        self._running_of: dict[Source, int] = {}
        self._ended_of: dict[Source, asyncio.Event] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        self._observer = handling.observer
        self._pulse = LoopPulse(handling.clock, BLOCKED_S)
        self._told_of_results: set[str] = set()

    def start(self) -> None:
        self._tasks.start(self._pulse.run(), f"{self._group} pulse")
        self.resize(self._concurrency)

    def resize(self, concurrency: int) -> None:
        """Have more or fewer workers; those at work end after what they are doing."""
        self._concurrency = concurrency
        for _ in range(concurrency - len(self._workers)):
            worker = self._tasks.start(self._work(), f"{self._group} worker")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        for worker in islice(tuple(self._waiting), max(0, len(self._workers) - concurrency)):
            self._leave(worker)
            worker.cancel()

    def _leave(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        self._waiting.discard(worker)

    async def _next_of(self, queue: asyncio.Queue[T]) -> T | None:
        """What is to be done next; None for a worker that is one too many."""
        worker = asyncio.current_task()
        assert worker is not None
        if len(self._workers) > self._concurrency:
            self._leave(worker)
            return None
        if not queue.empty():
            return queue.get_nowait()
        self._waiting.add(worker)
        try:
            return await queue.get()
        finally:
            self._waiting.discard(worker)

    @abstractmethod
    def submit(self, source: PullLoop, messages: list[MessageView]) -> None:
        """Deliver messages of one queue; they are in the queue's buffer, which bounds how many wait here."""

    @abstractmethod
    async def expire(self, source: PullLoop, timeout_s: float) -> None:
        """Deal with the oldest messages of a queue whose handler has run for too long."""

    @abstractmethod
    async def _work(self) -> None:
        """What one worker does until it is cancelled or one too many."""

    async def finish_running(self, source: PullLoop) -> None:
        """Begin no other call for a queue; returns when those that run have ended and their outcome counted."""
        source.leaving = True
        if source in self._running_of:
            await self._ended_of.setdefault(source, asyncio.Event()).wait()

    async def stop(self, timeout_s: float) -> None:
        """Start nothing new, give running handlers time to finish, then cancel them."""
        self._stopping = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning(
                "group %s: %d handlers still ran after %g s and were given up", self._group, self._busy, timeout_s
            )
            self._give_up()
        await self._tasks.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _give_up(self) -> None:  # noqa: B027 (nothing to do is a fine answer)
        """Handlers that still run are about to be cancelled."""

    async def run_directly(self, message: MessageView) -> Exception | None:
        """Run the handler for one message outside the normal flow; returns what it raised."""
        outcome = await self._run([message], None)
        return outcome if isinstance(outcome, Exception) else None

    def describe(self, source: PullLoop, info: ProcessQueueInfo) -> None:  # noqa: B027
        """Add facts about a queue that only delivery knows."""

    def _begin(self, source: Source) -> None:
        """What follows, up to `_end`, is given time to finish by `stop` and `finish_running`."""
        if not self._busy:
            self._idle.clear()
            self._pulse.begin()
        self._busy += 1
        self._running_of[source] = self._running_of.get(source, 0) + 1

    def _end(self, source: Source) -> None:
        self._busy -= 1
        self._running_of[source] -= 1
        if not self._running_of[source]:
            del self._running_of[source]
            if (ended := self._ended_of.pop(source, None)) is not None:
                ended.set()
        if not self._busy:
            self._idle.set()
            self._pulse.rest()

    async def _run(self, messages: list[MessageView], queue: MessageQueue | None) -> object:
        """What the handler returned, or the exception that it raised; without a queue, hooks and statistics are left out."""
        topic = messages[0].topic
        handler = self._handler_of(topic)
        if handler is None:
            if queue is not None and not queue.topic.startswith(RETRY_PREFIX):
                return NotDone()  # unsubscribed a moment ago: the queue is about to be dropped
            return LookupError(f"group {self._group!r} has no handler for topic {topic!r} any more")
        if queue is None:
            return await self._call(handler, messages, queue)
        observer, clock = self._observer, self._clock
        context = await observer.before(queue, messages) if observer.hooks else None
        started = clock.monotonic()
        outcome = await self._call(handler, messages, queue)
        took_s = clock.monotonic() - started
        observer.stats.handled(queue.topic, took_s * 1000)
        if took_s > BLOCKED_S and handler.on_loop:
            self._tell_if_blocked(handler, started)
        if context is not None:
            await observer.after(context, outcome if isinstance(outcome, Exception) else None, took_s)
        return outcome

    async def _call(self, handler: Handler, messages: list[MessageView], queue: MessageQueue | None) -> object:
        if messages[0].body_problem is not None:
            return UnreadableBody("; ".join(str(unreadable(message, queue)) for message in messages))
        now = str(self._clock.now_ms())
        for message in messages:
            message.properties[CONSUME_START_TIME] = now
        try:
            return await handler(messages, self._executor)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return RuntimeError(f"the handler was cancelled from inside: {error!r}")
        except Exception as error:
            return error

    def _tell_if_blocked(self, handler: Handler, started_s: float) -> None:
        if (blocked_s := self._pulse.standstill_since(started_s)) > BLOCKED_S:
            log.warning("group %s: the event loop stood still for %.1f s while handler %s ran; pulls, heartbeats and locks "
                        "waited with it. What blocks belongs into a plain function, which runs in a thread",
                        self._group, blocked_s, handler.name)  # fmt: skip

    def _tell_of_result(self, topic: str, result: object) -> None:
        """A result may be meant as a failure: log once how to report one."""
        if topic not in self._told_of_results:
            self._told_of_results.add(topic)
            handler = self._handler_of(topic)
            log.warning("group %s: handler %s of topic %s returned %.200r, which means nothing: a handler that returns has "
                        "consumed its messages, one that raises gets them again", self._group,
                        handler.name if handler is not None else "?", topic, result)  # fmt: skip

    def _finish(self, source: Source, messages: list[MessageView]) -> None:
        offset = source.finish(messages)
        if offset is not None and not source.dropped:
            self._progress(source, offset)


def batch_kind(message: MessageView) -> tuple[str, bool]:
    """What all messages of a batch share. A retry queue holds messages of several topics, and a batch is for one handler;
    one that can be read must not fail with one that cannot."""
    return message.topic, message.body_problem is None


class ConcurrentDelivery(Delivery):
    """Every message as soon as a worker is free."""

    def __init__(
        self,
        handling: Handling,
        progress: Callable[[Source, ConsumerOffset], None],
        give_back: GiveBack | None,
        retry_here_s: float = 5.0,
    ) -> None:
        """Without `give_back`, failed messages are left behind."""
        super().__init__(handling, progress)
        self._give_back = give_back
        self._retry_here_s = retry_here_s
        self._batches: asyncio.Queue[Batch] = asyncio.Queue()

    def submit(self, source: Source, messages: list[MessageView]) -> None:
        if self._batch_size == 1:
            for message in messages:
                self._batches.put_nowait((source, [message]))
            return
        for _, same_kind in groupby(messages, key=batch_kind):
            run = list(same_kind)
            for start in range(0, len(run), self._batch_size):
                self._batches.put_nowait((source, run[start : start + self._batch_size]))

    async def expire(self, source: PullLoop, timeout_s: float) -> None:
        """Hand back the oldest messages of a queue whose handler has run for too long, so that progress is not held
        up."""
        if self._give_back is None:
            return
        before_ms = self._clock.now_ms() - timeout_s * 1000
        for message in source.buffer.oldest(EXPIRED_PER_QUEUE):
            started_ms = int(message.properties.get(CONSUME_START_TIME, 0))
            if not started_ms or started_ms > before_ms:
                return
            log.warning("message %s of %s has been running for over %g s: it is handed back", message.message_id,
                        source.queue, timeout_s)  # fmt: skip
            if not await self._give_back(message, source.queue, EXPIRED_DELAY_LEVEL):
                return
            self._finish(source, [message])

    async def _work(self) -> None:
        while (batch := await self._next_of(self._batches)) is not None:
            source, messages = batch
            if source.leaving or self._stopping:
                continue
            self._begin(source)
            try:
                await self._deliver(source, messages)
            except Exception:
                log.exception("group %s: delivery from %s failed", self._group, source.queue)
            finally:
                self._end(source)

    async def _deliver(self, source: Source, messages: list[MessageView]) -> None:
        outcome = await self._run(messages, source.queue)
        if source.dropped:
            log.info("%s was given away while %d of its messages ran: they will be delivered again", source.queue,
                     len(messages))  # fmt: skip
            return
        if isinstance(outcome, NotDone):
            return
        if isinstance(outcome, Exception):
            failed = self._failed_of(messages, outcome)
            self._observer.stats.failed(source.queue.topic, len(failed))
            # What succeeded counts at once: handing the rest back may take its time.
            if len(failed) < len(messages):
                again = {message.queue_offset for message in failed}
                done = [message for message in messages if message.queue_offset not in again]
                self._observer.stats.succeeded(source.queue.topic, len(done))
                self._finish(source, done)
            messages = await self._return(source, failed, outcome) if failed else failed
        else:
            self._observer.stats.succeeded(source.queue.topic, len(messages))
            if outcome is not None:
                self._tell_of_result(messages[0].topic, outcome)
        if messages:
            self._finish(source, messages)

    def _failed_of(self, messages: list[MessageView], error: Exception) -> list[MessageView]:
        if not isinstance(error, RetryLater):
            return messages
        failed = error.failed_of(messages)
        if failed is None:
            log.warning("group %s: a handler wants messages later that it was not given: its whole list of %d comes again",
                        self._group, len(messages))  # fmt: skip
            return messages
        return failed

    def _tell_of_failure(self, source: Source, messages: list[MessageView], error: Exception) -> None:
        ids = ", ".join(message.message_id for message in messages)
        if isinstance(error, UnreadableBody | UnreadableMessages):
            again = messages[0].body_problem is not None and source.queue.topic.startswith(RETRY_PREFIX)
            log.log(logging.INFO if again else logging.WARNING, "group %s: %s of %s: %s", self._group, ids, source.queue,
                    error)  # fmt: skip
        elif isinstance(error, RetryLater):
            log.info("group %s: %s of %s later: %s", self._group, ids, source.queue, error)
        else:
            log.warning("group %s: handling %s of %s failed", self._group, ids, source.queue, exc_info=error)

    async def _return(self, source: Source, messages: list[MessageView], error: Exception) -> list[MessageView]:
        """Hand failed messages back; returns those that are settled."""
        self._tell_of_failure(source, messages, error)
        if self._give_back is None:
            return messages
        level = error.delay_level if isinstance(error, RetryLater) else 0
        taken = [await self._give_back(message, source.queue, level) for message in messages]
        kept = [message for message, done in zip(messages, taken) if not done]
        if kept:
            for message in kept:
                message.reconsume_times += 1
            self._tasks.start(self._again_here(source, kept), f"{self._group} again")
        return [message for message, done in zip(messages, taken) if done]

    async def _again_here(self, source: Source, messages: list[MessageView]) -> None:
        await asyncio.sleep(self._retry_here_s)
        if not source.leaving:
            self.submit(source, messages)
