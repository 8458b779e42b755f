"""One task that keeps exactly one pop request running, for a push consumer in pop mode.

It pops one queue, or all queues of a broker (-1), hands the messages to delivery, acknowledges those that are consumed and
has those that failed come again later. It stops popping while too many wait to be acknowledged. A loop that is dropped
still delivers what its last pop brings: popped messages belong to whoever popped them, whoever has the queue.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from rocketline.client.consumer.group.assignment import Strategy, find_strategy
from rocketline.client.consumer.group.assignment_query import strategy_name
from rocketline.client.consumer.group.consume_observer import ConsumeObserver
from rocketline.client.consumer.group.subscription import Subscription
from rocketline.client.consumer.pop.pop_receipts import Receipts, retry_delay_s
from rocketline.client.consumer.pop.pop_requests import PopAnswer, pop
from rocketline.client.consumer.push.handlers import NEVER_AGAIN
from rocketline.client.consumer.push.pull_loop import NOT_HELD_S
from rocketline.client.session import ClientSession
from rocketline.client.tasks import OwnedTasks
from rocketline.errors import ConfigError, FlowControl, RocketlineError, TransportError
from rocketline.message import ConsumerOffset, MessageQueue, MessageView
from rocketline.protocol.headers import PopMessageHeader
from rocketline.protocol.headers.pop import INIT_MAX
from rocketline.protocol.pop_info import MAX_POP_MESSAGES, ReceiptHandle

log = logging.getLogger(__name__)

POLL_GRACE_S = 10.0
_LOG_EVERY = 1000


@dataclass(frozen=True)
class PopSettings:
    """How a push consumer pops."""

    batch: int = MAX_POP_MESSAGES
    """Most messages of one pop."""
    invisible_s: float = 60.0
    """Messages that are not consumed within this time come again."""
    max_unacked: int = 96
    """No more is popped while more than this of one queue, or of one broker, wait to be acknowledged."""
    poll_s: float = 15.0
    """How long the broker may hold a pop that finds nothing."""
    init_mode: int = INIT_MAX

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= MAX_POP_MESSAGES:
            raise ConfigError(f"a pop of {self.batch} messages: 1 to {MAX_POP_MESSAGES} expected")
        if not 5 <= self.invisible_s <= 300:
            raise ConfigError(f"invisible_s {self.invisible_s}: 5 to 300 seconds expected")
        if not 1 <= self.max_unacked <= 1000:
            raise ConfigError(f"max_unacked {self.max_unacked}: 1 to 1000 expected")


@dataclass(frozen=True)
class ByBrokers:
    """Brokers share the queues out, and say whether they are pulled or popped (RocketMQ's clientRebalance=false)."""

    strategy: Strategy | str = "AVG"
    """The strategy that brokers use, by its name or as the function that has it."""
    pop: PopSettings = PopSettings()

    def __post_init__(self) -> None:
        strategy_name(find_strategy(self.strategy))


class PopReceiver(Protocol):
    """Gets the popped messages."""

    def submit(self, source: PopLoop, messages: list[MessageView]) -> None: ...


class DeadLetterSink(Protocol):
    """Takes a message that failed too often; whether it could."""

    async def __call__(self, message: MessageView, queue: MessageQueue, delay_level: int) -> bool: ...


@dataclass(frozen=True)
class PopReading:
    """What the pop loops of one consumer share."""

    session: ClientSession
    group: str
    settings: PopSettings
    receipts: Receipts
    delivery: PopReceiver
    dead_letters: DeadLetterSink
    retry_limit: int
    gate: asyncio.Event
    """Loops wait before their next pop while it is not set."""
    observer: ConsumeObserver


class PopLoop:
    """Pops one assigned queue until cancelled or dropped."""

    def __init__(self, reading: PopReading, queue: MessageQueue, subscription: Subscription, tasks: OwnedTasks) -> None:
        """`tasks` own the acknowledgements in the background, which outlive the loop."""
        self.queue = queue
        self.subscription = subscription
        self.leaving = self.dropped = False
        """Always: what was popped is delivered, whoever has the queue."""
        self.ended = False
        self.last_pop_ms = reading.session.clock.now_ms()
        self._session = reading.session
        self._group = reading.group
        self._settings = reading.settings
        self._receipts = reading.receipts
        self._delivery = reading.delivery
        self._dead_letters = reading.dead_letters
        self._retry_limit = reading.retry_limit
        self._gate = reading.gate
        self._observer = reading.observer
        self._tasks = tasks
        self._held: dict[int, MessageView] = {}
        self._acks = 0
        self._room = asyncio.Event()
        self._full_count = 0
        self._failures = 0
        self._done: list[MessageView] = []
        self._acking = False

    @property
    def unacked(self) -> int:
        """How many messages are here: waiting, being consumed or being acknowledged."""
        return len(self._held) + self._acks

    async def run(self) -> None:
        while not self.ended:
            try:
                await self._gate.wait()
                await self._wait_for_room()
                await self._turn()
            except RocketlineError as error:
                await self._after(error)
            except Exception:
                log.exception("popping %s for group %s failed", self.queue, self._group)
                await asyncio.sleep(self._session.timing.pull_retry_s)

    async def _wait_for_room(self) -> None:
        while self.unacked > self._settings.max_unacked:
            if self._full_count % _LOG_EVERY == 0:
                log.warning("popping of %s pauses: %d messages wait to be acknowledged", self.queue, self.unacked)
            self._full_count += 1
            self._room.clear()
            await self._room.wait()

    async def _turn(self) -> None:
        session, settings, clock = self._session, self._settings, self._session.clock
        broker = await session.broker_of(self.queue)
        await session.reintroduce(broker.address)
        self.last_pop_ms = clock.now_ms()
        header = PopMessageHeader(
            self._group,
            self.queue.topic,
            self.queue.queue_id,
            settings.batch,
            round(settings.invisible_s * 1000),
            round(settings.poll_s * 1000),
            self.last_pop_ms,
            settings.init_mode,
            self.subscription.data.expression_type,
            self.subscription.expression,
            order=False,
            broker_name=self.queue.broker_name,
        )
        started = clock.monotonic()
        try:
            answer = await pop(broker, header, settings.poll_s + POLL_GRACE_S)
        except TransportError:
            session.connection_failed(broker.address, self.queue.topic)
            raise
        self._recovered()
        self._receipts.heard(self.queue.broker_name, answer.pop_ms)
        took_s = clock.monotonic() - started
        if answer.messages:
            self._take(answer, took_s)
        elif answer.too_many:
            await asyncio.sleep(session.timing.pull_retry_s)
        elif took_s < NOT_HELD_S:
            await asyncio.sleep(session.timing.pull_busy_s)

    def _take(self, answer: PopAnswer, took_s: float) -> None:
        wanted = self._observer.wanted(self.subscription.wanted(answer.messages))
        self._observer.stats.pulled(self.queue.topic, took_s * 1000, len(wanted))
        self._held.update((id(message), message) for message in answer.messages)
        if len(wanted) < len(answer.messages):
            kept = {id(message) for message in wanted}
            self.finish([message for message in answer.messages if id(message) not in kept])
        if wanted:
            self._delivery.submit(self, wanted)

    def still_ours(self, messages: list[MessageView]) -> list[MessageView]:
        """Those whose invisible time is not over; the others are somebody else's by now."""
        ours = [message for message in messages if self._left_s(message) > 0]
        if len(ours) < len(messages):
            log.warning("group %s: %d messages of %s waited here for longer than their invisible time: they come again",
                        self._group, len(messages) - len(ours), self.queue)  # fmt: skip
            self.leave([message for message in messages if message not in ours])
        return ours

    def _left_s(self, message: MessageView) -> float:
        text = message.receipt_handle
        return self._receipts.left_s(ReceiptHandle.parse(text)) if text is not None else 0.0

    def finish(self, messages: list[MessageView]) -> ConsumerOffset | None:
        """Messages are consumed: acknowledged in the background, as many at once as have gathered."""
        for message in messages:
            self._held.pop(id(message), None)
        self._done += messages
        self._acks += len(messages)
        if not self._acking:
            self._acking = True
            self._tasks.start(self._acknowledge(), f"ack {self.queue}")
        return None

    async def _acknowledge(self) -> None:
        try:
            while self._done:
                done, self._done = self._done, []
                try:
                    await (self._receipts.ack(done[0]) if len(done) == 1 else self._receipts.ack_batch(done))
                except RocketlineError as error:
                    log.warning("group %s: messages of %s may come again: %s", self._group, self.queue, error)
                self._acks -= len(done)
                self._room.set()
        finally:
            self._acking = False

    async def give_back(self, message: MessageView, delay_level: int) -> None:
        """A message failed: it comes again later, or goes to the dead letters. `delay_level` counts as in Java's pop mode:
        0 is the message's own next delay, others pick one of the sixteen."""
        try:
            is_dead = delay_level < 0 or message.reconsume_times >= self._retry_limit
            if is_dead and await self._dead_letters(message, self.queue, NEVER_AGAIN):
                await self._receipts.ack(message)
                return
            delay_s = retry_delay_s(delay_level if delay_level > 0 else message.reconsume_times)
            await self._receipts.give_back(message, delay_s)
        except RocketlineError as error:
            log.warning("group %s: message %s of %s comes when its time is over: %s", self._group, message.message_id,
                        self.queue, error)  # fmt: skip
        finally:
            self.leave([message])

    def leave(self, messages: list[MessageView]) -> None:
        """Messages are not here any more; what was not settled comes again when its invisible time is over."""
        for message in messages:
            self._held.pop(id(message), None)
        self._room.set()

    async def _after(self, error: RocketlineError) -> None:
        timing = self._session.timing
        if isinstance(error, FlowControl):
            await asyncio.sleep(timing.pull_busy_s)
            return
        self._failures += 1
        level = logging.WARNING if self._failures % 60 == 1 else logging.DEBUG
        log.log(
            level, "popping %s for group %s failed (%d in a row): %s", self.queue, self._group, self._failures, error
        )
        await asyncio.sleep(timing.pull_retry_s)

    def _recovered(self) -> None:
        if self._failures > 1:
            log.info("popping %s for group %s works again", self.queue, self._group)
        self._failures = 0
