"""One task per queue that keeps exactly one pull request running.

    room in the buffer? -> pull (the broker may hold it) -> decode, filter, hold, hand on -> again from the next offset

What each answer leads to:

* found: the next pull starts at once; nothing new, nothing matched: likewise, and progress moves along when nothing is
  held
* offset moved: whoever owns the loop decides; the loop ends
* flow control: a short wait; any other refusal or failure: one second, the same offset again
* a record that is damaged: everything before it is handed on, the loop stays at it and says so. Skipping would lose
  a message without notice. A body that its sender packed wrongly is no damage: such a message is handed on like others
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from rocketline.client.consumer.group.consume_observer import ConsumeObserver
from rocketline.client.consumer.group.expression_check import require_sql
from rocketline.client.consumer.group.offsets import OffsetStore
from rocketline.client.consumer.group.start_offset import StartFrom
from rocketline.client.consumer.group.subscription import Subscription
from rocketline.client.consumer.push.queue_buffer import BufferLimits, QueueBuffer
from rocketline.client.remote_broker import PullAnswer, PullStatus, RemoteBroker
from rocketline.client.route_cache import NOT_MASTER_CODES
from rocketline.client.session import ClientSession
from rocketline.errors import (
    BrokerError,
    ConfigError,
    CorruptRecord,
    FlowControl,
    NoPermission,
    ProtocolError,
    RemoteProtocolError,
    RocketlineError,
    TransportError,
)
from rocketline.message import RETRY_PREFIX, RETRY_TOPIC, ConsumerOffset, MessageQueue, MessageView, QueueOffset
from rocketline.protocol.bodies import MASTER_ID
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.headers import PullMessageHeader
from rocketline.protocol.headers.read import COMMIT_OFFSET, LITE_PULL, SUBSCRIPTION, SUSPEND
from rocketline.protocol.records import decode_message

log = logging.getLogger(__name__)

MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
CONSUME_START_TIME = "CONSUME_START_TIME"

PUSH_MAX_BYTES = 256 * 1024
LITE_MAX_BYTES = (1 << 31) - 1

# An empty answer that comes back sooner was not held by the broker; asking again at once would spin.
NOT_HELD_S = 0.1

_UNKNOWN_SUBSCRIPTION = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)
_LASTING = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_PARSE_FAILED})
USUAL_BATCH = 32
"""More messages at once than this are asked for as a bulk read; Apache's broker gives this many all the same."""
_LOG_EVERY = 1000
_DOUBTS_TOLD = frozenset({5, 100, 10_000})


@dataclass(frozen=True, kw_only=True)
class PullSettings:
    """How the queues of a push or pull consumer are read, and how far ahead."""

    batch: int = USUAL_BATCH
    """Most messages of one pull; brokers of Apache give at most 32 unless configured otherwise."""
    interval_s: float = 0.0
    """Pause between two pulls of a queue."""
    suspend_s: float = 15.0
    """How long the broker may hold a pull that finds nothing."""
    timeout_s: float = 30.0
    """Time limit of a pull."""
    post_subscription: bool = False
    """Whether pulls carry the expression, which brokers then need not know from a heartbeat."""
    max_messages: int = 1000
    """Pulling of a queue pauses while more of its messages than this are not consumed."""
    max_mib: int = 100
    """The same in MiB of bodies."""
    max_span: int | None = 2000
    """The same in offsets: highest read minus lowest unfinished. Without meaning for ordered consumers."""
    max_topic_messages: int | None = None
    """Push consumers: instead of `max_messages`, a limit for all queues together that the consumer owns."""
    max_topic_mib: int | None = None
    """Push consumers: instead of `max_mib`, likewise."""
    max_total_messages: int = 10_000
    """Pull consumers: a limit for all queues together, besides those for each."""

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= 1024:
            raise ConfigError(f"a pull of {self.batch} messages: 1 to 1024 expected")
        if self.interval_s < 0:
            raise ConfigError(f"a pause of {self.interval_s} s between pulls: 0 or more expected")
        if not 0 < self.suspend_s < self.timeout_s:
            raise ConfigError(
                f"suspend_s {self.suspend_s} must be above 0 and below the time limit, timeout_s {self.timeout_s}"
            )
        if self.max_total_messages < 1:
            raise ConfigError(f"max_total_messages={self.max_total_messages}: at least 1 expected")
        for name, most in (("max_topic_messages", 6553500), ("max_topic_mib", 102400)):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise ConfigError(f"{name} {value}: 1 to {most} expected, or None for no limit")
        self.limits(1)  # checks the others

    def limits(self, queues: int) -> BufferLimits:
        """The limits of one queue, of so many that are owned."""
        messages, mib = self.max_messages, self.max_mib
        if self.max_topic_messages is not None:
            messages = max(1, self.max_topic_messages // queues)
        if self.max_topic_mib is not None:
            mib = max(1, self.max_topic_mib // queues)
        return BufferLimits(messages, mib, self.max_span)


@dataclass(frozen=True)
class QueueReading:
    """What the queues of one consumer are read with."""

    session: ClientSession
    group: str
    subscriptions: Mapping[str, Subscription]
    settings: PullSettings
    offsets: OffsetStore
    start_from: StartFrom
    observer: ConsumeObserver


class PullOwner(Protocol):
    """The owner of a pull loop."""

    def pulled(self, loop: PullLoop, messages: list[MessageView]) -> None:
        """New messages, already held in the loop's buffer."""

    def advanced(self, loop: PullLoop, offset: ConsumerOffset) -> None:
        """Nothing is held and everything below `offset` is done with."""

    def commit_offset(self, queue: MessageQueue) -> ConsumerOffset | None:
        """Progress to commit along with the next pull."""

    def full(self) -> str | None:
        """Why nothing more may be read into any buffer just now, if so."""

    def refused(self, loop: PullLoop) -> None:
        """The broker refuses to give messages of a queue: the loop's `refusal` says why."""

    async def offset_moved(self, loop: PullLoop, offset: QueueOffset) -> None:
        """The broker has nothing at the loop's offset and names a better one."""


class PullLoop:
    """Reads one queue from `next_offset` on, until cancelled or dropped."""

    def __init__(
        self,
        reading: QueueReading,
        queue: MessageQueue,
        subscription: Subscription,
        owner: PullOwner,
        next_offset: int,
        *,
        gate: asyncio.Event,
        subscribes: bool = False,
    ) -> None:
        """With `subscribes` every pull carries the subscription itself, so no heartbeat has to announce it. A `gate`
        that is not set holds the loop before its next pull."""
        session = reading.session
        self.queue = queue
        self.subscription = subscription
        self.next_offset = QueueOffset(next_offset)
        self.buffer = QueueBuffer()
        self.leaving = False
        self.dropped = False
        self.limits = reading.settings.limits(1)
        self.stuck_at: str | None = None
        """Where and why reading cannot go on, if so."""
        self.refusal: BrokerError | None = None
        """What the broker said to the last pull, if it was a refusal that does not pass by itself."""
        self.last_pull_ms = session.clock.now_ms()
        self._last_pull_s = session.clock.monotonic()
        self._began_ms = session.clock.now_ms()
        self._last_consume_ms = 0
        self._session = session
        self._group = reading.group
        self._settings = reading.settings
        self._observer = reading.observer
        self._owner = owner
        self._subscribes = subscribes
        self._gate = gate
        self._room = asyncio.Event()
        self._broker_id = 0
        self._failures = 0
        self._full_count = 0
        self._doubts = 0

    async def run(self) -> None:
        while not self.dropped:
            try:
                await self._gate.wait()
                await self._wait_for_room()
                await self._turn()
            except RocketlineError as error:
                await self._after(error)
            except Exception:
                log.exception("reading %s for group %s failed", self.queue, self._group)
                await asyncio.sleep(self._session.timing.pull_retry_s)

    def finish(self, messages: list[MessageView]) -> ConsumerOffset | None:
        """Messages are done with; returns what may be committed now."""
        self._last_consume_ms = self._session.clock.now_ms()
        offset = self.buffer.remove(messages)
        self._room.set()
        # With nothing held, what was read and filtered out behind the last message is done with too.
        return offset if offset is None or self.buffer else ConsumerOffset(max(offset, self.next_offset))

    @property
    def last_consume_ms(self) -> int:
        """When messages were last done with; 0: never. While the first ones are handled it is when reading began, because
        Apache's tools take it for the time since when a handler may be blocked."""
        return self._last_consume_ms or (self._began_ms if len(self.buffer) else 0)

    @property
    def undone_offset(self) -> int:
        """Of the first message that is not done with; without any, of the next one to be read."""
        first = self.buffer.min_offset
        return self.next_offset if first is None else first

    def drop(self) -> None:
        """Nothing held here counts any more: the queue went elsewhere, or its offset was changed."""
        self.leaving = self.dropped = True
        self.buffer.clear()

    def jump(self, offset: int) -> None:
        """Go on at another offset, also a lower one; what is held is forgotten."""
        self.buffer = QueueBuffer()
        self.next_offset = QueueOffset(offset)
        self._room.set()

    def _note_pull(self) -> None:
        clock = self._session.clock
        self.last_pull_ms = clock.now_ms()
        self._last_pull_s = clock.monotonic()

    @property
    def is_stalled(self) -> bool:
        """Whether the last pull is longer ago than a running pull or a pause between two can explain."""
        settings = self._settings
        limit_s = max(self._session.timing.pull_idle_s, 2 * (settings.timeout_s + settings.interval_s))
        return self._session.clock.monotonic() - self._last_pull_s > limit_s

    async def _wait_for_room(self) -> None:
        while (reason := self.buffer.over(self.limits) or self._owner.full()) is not None:
            if self._full_count % _LOG_EVERY == 0:
                log.warning("pulling of %s pauses: %s", self.queue, reason)
            self._full_count += 1
            self._note_pull()
            self._room.clear()
            try:
                async with asyncio.timeout(self._session.timing.pull_recheck_s):
                    await self._room.wait()
            except TimeoutError:
                continue

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        self._note_pull()
        broker, broker_id = await self._session.find_reader(self.queue, self._broker_id)
        await self._session.reintroduce(broker.address)
        if self.subscription.is_sql:
            require_sql(self._session, broker, self.queue)
        started = loop.time()
        try:
            answer = await self._pull(broker, broker_id)
        except TransportError:
            self._session.connection_failed(broker.address, self.queue.topic)
            raise
        except BrokerError as error:
            if error.code in _UNKNOWN_SUBSCRIPTION:
                await self._session.heartbeat(broker.address)
            elif error.code in NOT_MASTER_CODES:
                # A replica that may not be read, or a master that is none any more.
                self._broker_id = MASTER_ID
                self._session.routes.doubt(self.queue.topic)
            raise
        self._broker_id = answer.suggested_broker_id
        if answer.is_replica and broker_id == MASTER_ID:  # what we took for the master
            self._session.routes.doubt(self.queue.topic)
        if answer.status is PullStatus.FOUND:
            self._take(answer, started)
            self._recovered()
            if self._settings.interval_s:
                await asyncio.sleep(self._settings.interval_s)
            return
        self._recovered()
        if answer.status is PullStatus.OFFSET_MOVED:
            log.warning("%s has nothing at %d for group %s; it names %d", self.queue, self.next_offset, self._group,
                        answer.next_offset)  # fmt: skip
            await self._owner.offset_moved(self, answer.next_offset)
        else:
            self._go_on_at(answer.next_offset)
            if answer.status is PullStatus.NO_NEW and loop.time() - started < NOT_HELD_S:
                await asyncio.sleep(self._session.timing.pull_busy_s)

    async def _pull(self, broker: RemoteBroker, broker_id: int) -> PullAnswer:
        settings, queue = self._settings, self.queue
        posts = self._subscribes or settings.post_subscription
        sys_flag = SUSPEND | (SUBSCRIPTION if posts else 0) | (LITE_PULL if self._subscribes else 0)
        commit = self._owner.commit_offset(queue) if broker_id == 0 else None
        if commit is not None and commit > 0:
            sys_flag |= COMMIT_OFFSET
        else:
            commit = ConsumerOffset(0)
        header = PullMessageHeader(
            self._group,
            queue.topic,
            queue.queue_id,
            self.next_offset,
            settings.batch,
            sys_flag,
            commit,
            round(settings.suspend_s * 1000),
            0 if self._subscribes else self.subscription.version,
            self.subscription.expression if posts else None,
            self.subscription.data.expression_type,
            LITE_MAX_BYTES if self._subscribes else PUSH_MAX_BYTES,
            broker_name=queue.broker_name,
            bulk=settings.batch > USUAL_BATCH,
        )
        code = RequestCode.LITE_PULL_MESSAGE if self._subscribes else RequestCode.PULL_MESSAGE
        return await broker.pull(header, settings.timeout_s, code)

    def _take(self, answer: PullAnswer, started: float) -> None:
        if answer.next_offset <= self.next_offset:
            raise RemoteProtocolError(
                f"{self.queue}: messages found at {self.next_offset}, but next is {answer.next_offset}"
            )
        messages, problem = read_messages(answer, self.queue, self.next_offset)
        wanted = self.subscription.wanted(messages)
        if len(wanted) < len(messages):
            self._doubt("brings messages of tags we do not want")
        wanted = self._observer.wanted(wanted)
        took_s = asyncio.get_running_loop().time() - started
        self._observer.stats.pulled(self.queue.topic, took_s * 1000, len(wanted))
        if problem is None:
            next_offset = answer.next_offset
        else:
            next_offset = QueueOffset(messages[-1].queue_offset + 1) if messages else self.next_offset
        added = self.buffer.add(wanted)
        self._go_on_at(next_offset)
        if added:
            self._owner.pulled(self, added)
        if problem is not None:
            self.stuck_at = f"{self.queue} offset {next_offset}: {problem}"
            raise RemoteProtocolError(f"the message at {self.stuck_at}; nothing behind it is delivered")

    def _go_on_at(self, offset: QueueOffset) -> None:
        self.next_offset = offset
        if not self.buffer:
            self._owner.advanced(self, ConsumerOffset(offset))

    async def _after(self, error: RocketlineError) -> None:
        timing = self._session.timing
        if isinstance(error, FlowControl):
            await asyncio.sleep(timing.pull_busy_s)
            return
        self._failures += 1
        unknown = isinstance(error, BrokerError) and error.code in _UNKNOWN_SUBSCRIPTION
        if unknown:
            self._doubt(f"does not know our subscription ({error})")
        level = logging.DEBUG if unknown or self._failures % 60 != 1 else logging.WARNING
        log.log(
            level, "reading %s for group %s failed (%d in a row): %s", self.queue, self._group, self._failures, error
        )
        if is_lasting(error):
            self.refusal = error
            self._owner.refused(self)
        if isinstance(error, BrokerError) and error.code in NOT_MASTER_CODES:  # another one may lead already
            await self._session.routes.changed_within(self.queue.topic, timing.pull_retry_s)
            return
        # The heartbeat that makes us known has just been sent: ask again soon, but not for ever.
        await asyncio.sleep(timing.pull_busy_s if unknown and self._failures == 1 else timing.pull_retry_s)

    def _doubt(self, what: str) -> None:
        """A hash may be equal by chance and a broker may have restarted; if it goes on, our group disagrees."""
        self._doubts += 1
        if self._doubts in _DOUBTS_TOLD:
            log.warning("the broker of %s again and again %s: do all members of group %s subscribe to the same topics with "
                        "the same expressions? If not, they lose messages", self.queue, what, self._group)  # fmt: skip

    def _recovered(self) -> None:
        if self._failures > 1:
            log.info("reading %s for group %s works again", self.queue, self._group)
        self._failures = 0
        self.stuck_at = self.refusal = None


def is_lasting(error: RocketlineError) -> TypeGuard[BrokerError]:
    """Whether a broker refuses a request for a reason that somebody has to remove, and will refuse it again."""
    return isinstance(error, BrokerError) and (isinstance(error, NoPermission) or error.code in _LASTING)


def read_messages(
    answer: PullAnswer, queue: MessageQueue, first_offset: int, max_body_bytes: int | None = None
) -> tuple[list[MessageView], str | None]:
    """(messages up to the first that cannot be read, what is wrong with that one)."""
    body, limit, position = answer.body, len(answer.body), 0
    # The start time is ours to set; as a property of the sender's it would only mislead us.
    changes = {MIN_OFFSET: str(answer.min_offset), MAX_OFFSET: str(answer.max_offset), CONSUME_START_TIME: None}
    broker_name, offset_delta = queue.broker_name, answer.offset_delta
    messages: list[MessageView] = []
    if not limit:
        return messages, f"the answer for {first_offset} says found and holds no message"
    while position < limit:
        try:
            message = decode_message(body, position, limit, max_body_bytes, changes)
        except (CorruptRecord, ProtocolError) as error:
            return messages, str(error)
        position += message.stored_bytes
        message.broker_name = broker_name
        if offset_delta:
            message.queue_offset = QueueOffset(message.queue_offset + offset_delta)
        if message.topic.startswith(RETRY_PREFIX):
            message.topic = message.properties.get(RETRY_TOPIC, message.topic)
        messages.append(message)
    return messages, None
