"""Where a pop consumer's messages come from: every broker of every subscribed topic.

A pop asks one broker for any of its queues and never waits there. When nobody has anything, a request that takes nothing
(200054) waits at each of them, and the first that tells of a message is popped. Waiting with the pops themselves would be
a round trip quicker, but when one is answered the others cannot be called back: what they bring later would be hidden
from the group for the whole invisible time. For the same reason a running pop is not cancelled with the call that
wanted it: what it brings is kept for the next one.

A message whose body cannot be inflated is given to nobody: it comes again when its invisible time is over, until brokers
put it among the dead letters. In order it would keep its queue from all others for ever, so it goes there at once.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Iterable, Mapping

from rocketline.client.consumer.group.subscription import Subscription
from rocketline.client.consumer.pop.pop_loop import DeadLetterSink
from rocketline.client.consumer.pop.pop_receipts import Receipts
from rocketline.client.consumer.pop.pop_requests import PopAnswer, pop, wait_for_messages
from rocketline.client.consumer.push.handlers import NEVER_AGAIN
from rocketline.client.consumer.push.pull_loop import NOT_HELD_S
from rocketline.client.remote_broker import RemoteBroker
from rocketline.client.route_cache import NOT_MASTER_CODES
from rocketline.client.serializers import unreadable
from rocketline.client.session import ClientSession
from rocketline.client.tasks import OwnedTasks
from rocketline.errors import (
    BrokerError,
    FlowControl,
    RequestNotSupported,
    RocketlineError,
    RouteNotFound,
    ServiceNotAvailable,
    SystemBusy,
    TransportError,
)
from rocketline.message import MessageView
from rocketline.protocol.headers import NotificationHeader, PopMessageHeader
from rocketline.protocol.headers.pop import ANY_QUEUE
from rocketline.protocol.pop_info import MAX_POP_MESSAGES, ReceiptHandle

log = logging.getLogger(__name__)

LONGEST_POLL_S = 15.0
POLL_GRACE_S = 10.0
"""How much later than asked for the answer to a held request may come."""
LONGEST_PAUSE_S = 1.0


class PopSource:
    """One broker that has a topic."""

    __slots__ = ("attempt_id", "broker_name", "error", "is_ready", "misses", "subscription", "watch")

    def __init__(self, subscription: Subscription, broker_name: str) -> None:
        self.subscription = subscription
        self.broker_name = broker_name
        self.is_ready = True
        """Whether a pop may well find something."""
        self.misses = 0
        """How often in a row it did not, though the broker had said so: others were quicker, or a queue was busy."""
        self.error: RocketlineError | None = None
        self.watch: asyncio.Task[None] | None = None
        self.attempt_id = _new_attempt()


class PopSources:
    """All sources of one consumer, and the messages that nobody has taken yet."""

    def __init__(
        self,
        session: ClientSession,
        group: str,
        subscriptions: Mapping[str, Subscription],
        receipts: Receipts,
        *,
        init_mode: int,
        dead_letters: DeadLetterSink | None,
    ) -> None:
        """With `dead_letters`, messages come in order."""
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._receipts = receipts
        self._init_mode = init_mode
        self._dead_letters = dead_letters
        self._ordered = dead_letters is not None
        self._sources: dict[tuple[str, str], PopSource] = {}
        self._turn = 0
        self._tasks = OwnedTasks()
        self._arrived: deque[MessageView] = deque()
        self._closed = False

    async def close(self) -> None:
        """Wait for running pops and end waiting requests; a waiting `receive` returns nothing."""
        self._closed = True
        waiting = {source.watch for source in self._sources.values() if source.watch is not None}
        for watch in waiting:
            watch.cancel()
        await self._tasks.drain(self._session.timing.call_s)

    def left_over(self) -> list[MessageView]:
        """What was popped and taken by nobody."""
        messages = list(self._arrived)
        self._arrived.clear()
        return messages

    async def receive(self, count: int, invisible_s: float, wait_s: float) -> list[MessageView]:
        """Messages as soon as there are any, none when the time is over; an error when no broker could be asked."""
        clock = self._session.clock
        deadline = clock.monotonic() + wait_s
        everywhere = True
        while not self._closed:
            if messages := self._take_arrived(count):
                return messages
            sources = await self._find_sources()
            await self._pop_somewhere(sources, count, invisible_s, everywhere=everywhere)
            if messages := self._take_arrived(count):
                return messages
            left_s = deadline - clock.monotonic()
            self._raise_if_hopeless(sources, waits=left_s > 0)
            if left_s <= 0:
                break
            everywhere = False
            await self._wait(sources, left_s)
        return []

    def _take_arrived(self, count: int) -> list[MessageView]:
        taken: list[MessageView] = []
        while self._arrived and len(taken) < count:
            message = self._arrived.popleft()
            handle = message.receipt_handle
            if handle is not None and self._receipts.left_s(ReceiptHandle.parse(handle)) > 0:
                taken.append(message)
        return taken

    async def _find_sources(self) -> list[PopSource]:
        """The sources by the routes of now; those known already go on as they are."""
        found: dict[tuple[str, str], PopSource] = {}
        error: RouteNotFound | None = None
        for topic, subscription in list(self._subscriptions.items()):
            try:
                route = await self._session.routes.find(topic)
            except RouteNotFound as missing:
                error = missing
                continue
            for name in sorted({queue.broker_name for queue in route.readable}):
                source = self._sources.get((topic, name)) or PopSource(subscription, name)
                source.subscription = subscription
                found[topic, name] = source
        for key, source in self._sources.items():
            if key not in found and source.watch is not None:
                source.watch.cancel()
        self._sources = found
        if not found and error is not None:
            raise error
        return list(found.values())

    async def _pop_somewhere(
        self, sources: list[PopSource], count: int, invisible_s: float, *, everywhere: bool
    ) -> None:
        """Pop from one source after the other, until one has something; first those that may well have."""
        self._turn += 1
        start = self._turn % max(1, len(sources))
        turn = sources[start:] + sources[:start]
        ready = [source for source in turn if source.is_ready]
        rest = [source for source in turn if not source.is_ready] if everywhere else []
        for source in ready + rest:
            # Shielded: see the module's text.
            await asyncio.shield(self._tasks.start(self._pop(source, count, invisible_s), f"pop {self._group}"))
            if self._arrived:
                return

    async def _pop(self, source: PopSource, count: int, invisible_s: float) -> None:
        subscription = source.subscription
        header = PopMessageHeader(
            self._group,
            subscription.topic,
            ANY_QUEUE,
            min(count, MAX_POP_MESSAGES),
            round(invisible_s * 1000),
            0,
            self._session.clock.now_ms(),
            self._init_mode,
            subscription.data.expression_type,
            subscription.expression,
            self._ordered,
            source.attempt_id if self._ordered else None,
            source.broker_name,
        )
        try:
            answer = await pop(self._broker(source), header, self._session.timing.call_s)
        except RocketlineError as error:
            self._failed(source, error)
            return
        source.error = None
        source.attempt_id = _new_attempt()
        self._receipts.heard(source.broker_name, answer.pop_ms)
        self._take(source, answer)

    def _take(self, source: PopSource, answer: PopAnswer) -> None:
        wanted = source.subscription.wanted(answer.messages)
        source.misses = 0 if answer.messages else source.misses + source.is_ready
        source.is_ready = bool(answer.messages)
        self._arrived.extend(message for message in wanted if message.body_problem is None)
        for message in wanted:
            if message.body_problem is not None:
                log.error("group %s: %s", self._group, unreadable(message))
                if self._dead_letters is not None:
                    self._tasks.start(self._bury(message, self._dead_letters), f"bury {self._group}")
        if len(wanted) < len(answer.messages):
            kept = {id(message) for message in wanted}
            strange = [message for message in answer.messages if id(message) not in kept]
            self._tasks.start(self._acknowledge(strange), f"ack unwanted {self._group}")

    async def _acknowledge(self, messages: list[MessageView]) -> None:
        """Nobody here ever wants them: their tags only hash like ours, or they are among the dead letters."""
        try:
            await self._receipts.ack_batch(messages)
        except RocketlineError as error:
            log.warning("group %s: %s", self._group, error)

    async def _bury(self, message: MessageView, dead_letters: DeadLetterSink) -> None:
        if await dead_letters(message, message.queue, NEVER_AGAIN):
            await self._acknowledge([message])

    def _broker(self, source: PopSource) -> RemoteBroker:
        broker = self._session.master_of(source.broker_name)
        if broker is None:
            raise RouteNotFound(
                f"topic {source.subscription.topic!r}: broker {source.broker_name!r} has no master at the moment"
            )
        return broker

    def _failed(self, source: PopSource, error: RocketlineError) -> None:
        log.log(logging.WARNING if source.error is None else logging.DEBUG, "group %s: %s", self._group, error)
        source.error = error
        source.is_ready = False
        if isinstance(error, TransportError) and (known := self._session.master_of(source.broker_name)):
            self._session.connection_failed(known.address, source.subscription.topic)
        elif isinstance(error, BrokerError) and error.code in NOT_MASTER_CODES:
            self._session.routes.doubt(source.subscription.topic)

    def _raise_if_hopeless(self, sources: Iterable[PopSource], *, waits: bool) -> None:
        """An error when every source has one; what may pass by itself is waited for first."""
        errors = [source.error for source in sources]
        if not errors:
            return
        for error in errors:
            passes = not isinstance(error, BrokerError) or isinstance(error, FlowControl | SystemBusy)
            passes |= isinstance(error, ServiceNotAvailable)
            if error is None or (waits and passes):
                return
        assert errors[0] is not None
        raise errors[0]

    async def _wait(self, sources: list[PopSource], left_s: float) -> None:
        """Until some source may have something, or the time is over."""
        for source in sources:
            if source.watch is None and not source.is_ready:
                poll_s = min(left_s, LONGEST_POLL_S)
                source.watch = self._tasks.start(self._watch(source, poll_s), f"wait {self._group}")
        watches = [source.watch for source in sources if source.watch is not None]
        if watches and not any(source.is_ready for source in sources):
            await asyncio.wait(watches, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        elif not watches:
            await asyncio.sleep(min(left_s, self._session.timing.pull_retry_s))

    async def _watch(self, source: PopSource, poll_s: float) -> None:
        """Make the source ready when a pop is worth it. What it learns is used by a later call if this one is over."""
        timing = self._session.timing
        try:
            if source.error is not None:
                await asyncio.sleep(timing.pull_retry_s)
                source.is_ready = True
                return
            if source.misses > 1:
                await asyncio.sleep(min(timing.pull_busy_s * 2**source.misses, LONGEST_PAUSE_S))
            source.is_ready = await self._ask(source, poll_s)
        finally:
            source.watch = None

    async def _ask(self, source: PopSource, poll_s: float) -> bool:
        timing, clock = self._session.timing, self._session.clock
        header = NotificationHeader(
            self._group,
            source.subscription.topic,
            ANY_QUEUE,
            round(poll_s * 1000),
            clock.now_ms(),
            self._ordered,
            source.attempt_id if self._ordered else None,
            source.broker_name,
        )
        started = clock.monotonic()
        try:
            broker = self._broker(source)
            has_message, too_many = await wait_for_messages(broker, header, poll_s + POLL_GRACE_S)
        except RequestNotSupported:
            has_message, too_many = True, True
        except RocketlineError as error:
            self._failed(source, error)
            return False
        if too_many or (not has_message and clock.monotonic() - started < min(NOT_HELD_S, poll_s / 2)):
            await asyncio.sleep(timing.pull_retry_s)  # it does not hold our request: look for ourselves, but seldom
            return True
        return has_message


def _new_attempt() -> str:
    """A pop in order that is asked again with the same attempt gets the messages whose answer was lost."""
    return uuid.uuid4().hex
